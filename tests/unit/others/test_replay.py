"""Recorded pauses of LangGraph become the questions that they are, and answers become what LangGraph resumes with."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nbagent.core.base.errors import UsageError
from nbagent.others.langgraph import Adapter
from nbagent.others.legs import Ask, Leg
from nbagent.others.watch import check_ids

CASES = Path("/work/shared/cases/others")


def adapter() -> Adapter:
    """An adapter without a graph."""
    made = Adapter.__new__(Adapter)
    made._known = {}
    return made


def pauses(name: str) -> list[SimpleNamespace]:
    """The interrupts of a recording."""
    legs = json.loads((CASES / name).read_text())["legs"]
    ends = [e for leg in legs for e in leg["events"] if e["type"] == "RUN_FINISHED"]
    found = [one for end in ends for one in (end.get("outcome") or {}).get("interrupts", ())]
    raw = [one["metadata"]["langgraph"]["raw"] for one in found]
    return [
        SimpleNamespace(id=one["id"], value=value, response_schema=None)
        for one, value in zip(found, raw, strict=True)
    ]


@pytest.mark.skipif(not CASES.is_dir(), reason="the recordings are not here")
def test_recorded_interrupts_become_approvals_and_questions() -> None:
    """The middleware's pauses are approvals of their calls; a text is a question."""
    first, second = pauses("langgraph_hitl_per_call.json")[:2]
    asks = [adapter()._asks(one, [])[0] for one in (first, second)]
    assert [(one.kind, one.name, one.call) for one in asks] == [
        ("approval", "send_email", "c2"),
        ("approval", "send_email", "c3"),
    ]
    assert asks[0].message == ""
    (typed,) = adapter()._asks(pauses("langgraph_typed.json")[0], [])
    assert (typed.kind, typed.message) == ("question", "Which trip?")


BATCHED = {
    "action_requests": [{"name": "pay", "args": {"n": 1}}, {"name": "ask", "args": {}}],
    "review_configs": [
        {"action_name": "pay", "allowed_decisions": ["approve", "edit", "reject"]},
        {"action_name": "ask", "allowed_decisions": ["respond"]},
    ],
}


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ({"input": {"n": 1}, "edited": False}, {"type": "approve"}),
        (
            {"input": {"n": 2}, "edited": True},
            {"type": "edit", "edited_action": {"name": "pay", "args": {"n": 2}}},
        ),
        ({"rejected": None}, {"type": "reject"}),
        ({"rejected": "no"}, {"type": "reject", "message": "no"}),
    ],
)
def test_answers_become_the_decisions_of_the_middleware_in_order(
    answer: dict[str, Any], decision: dict[str, Any]
) -> None:
    """Equal calls keep their own ids; a tool that only a person answers is a question."""
    calls = [{"name": "pay", "args": {"n": 1}, "id": "c1"}]
    interrupt = SimpleNamespace(id="i", value=BATCHED, response_schema=None)
    asks = adapter()._asks(interrupt, calls)
    assert [(one.kind, one.call) for one in asks] == [("approval", "c1"), ("respond", "")]
    answers = dict(zip((one.id for one in asks), (answer, {"value": "blue"}), strict=True))
    resumed = adapter()._values(Leg(**Leg.paused(asks)), answers)
    respond = {"type": "respond", "message": "blue"}
    assert resumed == {"i": {"decisions": [decision, respond]}}


@pytest.mark.parametrize("ids", [["a", "a"], [""], ["a", ""]])
def test_pauses_with_equal_or_empty_ids_are_refused(ids: list[str]) -> None:
    """An answer could reach the wrong one."""
    with pytest.raises(UsageError, match="could reach the wrong one"):
        check_ids([Ask(id=one, kind="question") for one in ids])
