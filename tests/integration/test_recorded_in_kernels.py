"""A person answers in a notebook during a recording and a replay."""

from __future__ import annotations

import json

from tests.integration.kernels import front_end
from tests.integration.test_runs_in_kernels import RUN, Page

LEFT = 'agent().run("go")'
"""The same run with a model without a script."""


def test_c202_answers_in_forms_are_recorded_and_stay_with_the_person_in_a_replay(
    tmp_path, monkeypatch
):
    """NBAGENT_RECORD records the answer; with NBAGENT_REPLAY the form is shown, and another answer is an error."""
    path = tmp_path / "session.json"
    monkeypatch.setenv("NBAGENT_RECORD", str(path))
    with front_end() as kernel:
        page = Page(kernel)
        page.start(RUN)
        card = page.card()
        page.press(card, page.question(card))
        page.status(card, "completed")
    said = json.loads(path.read_text())["session"]
    assert [next(kind for kind in ("request", "question") if kind in each) for each in said] == [
        "request",
        "question",
        "request",
    ]
    assert said[1]["answered"]["type"] == "restart"

    monkeypatch.delenv("NBAGENT_RECORD")
    monkeypatch.setenv("NBAGENT_REPLAY", str(path))
    with front_end() as kernel:
        page = Page(kernel)
        for action, status in (("approve", "completed"), ("reject", "failed")):
            request = page.start(LEFT, cell_id=action)
            card = page.card()
            page.press(card, page.question(card), action)
            page.status(card, status)
            page.kernel.finish(request)
        assert page.kernel.must_run("print(ran)") == "[5]\n"
        told = page.kernel.must_run(
            "from nbagent.core.run.session import all_sessions\n"
            "print([str(s.error) for s in all_sessions() if s.status == 'failed'])"
        )
        assert "can only be replayed with the same results and answers" in told
