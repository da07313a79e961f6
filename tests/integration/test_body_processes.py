"""Runs that a tool's body starts, in one store and several real processes, some of which are killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import Begin, effects, wait_for


def starting(tool: str, *turns: Any) -> Any:
    """The call of a tool that starts a run of the banker with these turns of calls."""
    return [[tool, {"prompt": json.dumps(turns)}]]


def call_results(end: Any) -> Any:
    """The results of the banker's calls."""
    assert end["status"] == "completed"
    (banker,) = json.loads(end["text"])
    return json.loads(banker)


LOOK = [["look", {"at": "inside"}]]
GATE = ["gate", {"amount": 5}]


@pytest.mark.variant
@pytest.mark.parametrize("tool", ["starts", "starts_sync"])
@pytest.mark.parametrize(
    ("answer", "result", "done"),
    [
        ({"output": "by hand"}, "by hand", []),
        ({"data": "go"}, "5 {'quote': 10} go", ["gate"]),
        (
            {"reason": "too much"},
            "A person rejected this call of gate. It was not run. Reason: too much",
            [],
        ),
    ],
    ids=["respond", "restart", "reject"],
)
@pytest.mark.parametrize("killed", [False, True])
def test_c154_a_question_of_a_run_started_by_a_body_is_answered_in_another_process(
    start_process: Begin,
    tmp_path: Path,
    tool: str,
    answer: Any,
    result: str,
    done: list[str],
    killed: bool,
) -> None:
    """If the first process is alive, its body continues at its line; otherwise, the body runs again."""
    first = start_process()
    run = first.ask("start", calls=starting(tool, LOOK, [GATE]))
    [[*path, interrupt]] = run["paths"]
    assert path == ["agent", tool, "banker", "gate"]
    if killed:
        first.kill()
    second = start_process()
    assert second.ask("open", run_id=run["id"]) == run
    answered = second.ask("answer", run_id=run["id"], interrupt=interrupt, at=0, **answer)
    assert answered == "won"
    end = second.ask("finish", run_id=run["id"])
    assert call_results(end) == ["saw inside", result]
    entered = ["starts"] * (2 if killed else 1)
    assert sorted(effects(tmp_path)) == sorted(["look:inside", *entered, *done])
    if not killed:
        assert first.ask("finish", run_id=run["id"]) == end


def test_c154_a_process_is_killed_inside_an_outer_and_an_inner_body(
    start_process: Begin, tmp_path: Path
) -> None:
    """A person answers for both bodies; the restarted outer body continues with the same inner run."""
    first, second = start_process(), start_process()
    run = first.ask("start", calls=starting("starts", LOOK, [["slow", {}]]), settle=False)
    wait_for("slow", tmp_path)
    first.kill()
    second.ask("open", run_id=run["id"])
    asked = second.ask("settle", run_id=run["id"])
    paths = {path[-2]: path for path in asked["paths"]}
    assert paths["slow"][:-1] == ["agent", "starts", "banker", "slow"]
    assert paths["starts"][:-1] == ["agent", "starts"]
    second.ask("answer", run_id=run["id"], at=0, interrupt=paths["slow"][-1], output="slept")
    second.ask("answer", run_id=run["id"], at=0, interrupt=paths["starts"][-1])
    assert call_results(second.ask("finish", run_id=run["id"])) == ["saw inside", "slept"]
    assert sorted(effects(tmp_path)) == ["look:inside", "slow", "starts", "starts"]
