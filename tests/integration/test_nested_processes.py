"""An agent in an agent in an agent, with one store and several real processes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from tests.integration.processes import Begin, effects, wait_for


def nested(*turns: Any) -> Any:
    """The outer calls for which the banker, two agents deep, makes these turns of calls."""
    inside = json.dumps([[["banker", {"prompt": json.dumps(turns)}]]])
    return [["manager", {"prompt": inside}], ["look", {"at": "outside"}]]


LOOK = [["look", {"at": "inside"}]]
GATE = ["gate", {"amount": 5}]


def call_results(end: Any) -> Any:
    """The results of the banker's calls, taken from the outer agent's text."""
    assert end["status"] == "completed"
    (manager, outside) = json.loads(end["text"])
    assert outside == "saw outside"
    (banker,) = json.loads(manager)
    return json.loads(banker)


@pytest.mark.variant
@pytest.mark.parametrize(
    ("answer", "result", "done"),
    [
        ({"output": "by hand"}, "by hand", []),
        ({"data": "go"}, "5 {'quote': 10} go", ["gate"]),
        (
            {"new_input": {"amount": 3}, "data": "go"},
            "A person changed the arguments of this call to {\"amount\":3}.\n3 {'quote': 10} go",
            ["gate"],
        ),
        (
            {"reason": "too much"},
            "A person rejected this call of gate. It was not run. Reason: too much",
            [],
        ),
    ],
    ids=["respond", "restart", "new input", "reject"],
)
@pytest.mark.parametrize("killed", [False, True])
def test_c103_c120_questions_of_two_inner_agents_are_answered_in_another_process(
    start_process: Begin, tmp_path: Path, answer: Any, result: str, done: list[str], killed: bool
) -> None:
    """Finished inner calls are not repeated, and the inner model gets the answer; the first process may be killed."""
    first = start_process()
    run = first.ask("start", calls=nested(LOOK, [GATE]))
    [[*path, interrupt]] = run["paths"]
    assert path == ["agent", "manager", "banker", "gate"]
    assert sorted(effects(tmp_path)) == ["look:inside", "look:outside"]
    if killed:
        first.kill()
    second = start_process()
    assert second.ask("open", run_id=run["id"]) == run
    answered = second.ask("answer", run_id=run["id"], interrupt=interrupt, at=0, **answer)
    assert answered == "won"
    end = second.ask("finish", run_id=run["id"])
    assert call_results(end) == ["saw inside", result]
    assert sorted(effects(tmp_path)) == sorted(["look:inside", "look:outside", *done])
    if not killed:
        assert first.ask("finish", run_id=run["id"]) == end


def test_c103_inner_siblings_are_answered_one_by_one_in_processes_that_die(
    start_process: Begin, tmp_path: Path
) -> None:
    """Of the calls, one is finished, one answered, one open: each process continues from the stored state."""
    run = start_and_kill(start_process, nested([GATE, *LOOK, ["ask", {"q": "?"}], GATE]))
    for answers in ({"data": "first"}, {"output": "b"}):
        process = start_process()
        opened = process.ask("open", run_id=run["id"])
        interrupt = opened["paths"][0][-1]
        process.ask("answer", run_id=run["id"], interrupt=interrupt, at=0, **answers)
        left = process.ask("settle", run_id=run["id"])
        assert [p[-2] for p in left["paths"]] == [p[-2] for p in opened["paths"]][1:]
        process.kill()
    last = start_process()
    [[*_, interrupt]] = last.ask("open", run_id=run["id"])["paths"]
    last.ask("answer", run_id=run["id"], interrupt=interrupt, at=0, data="last")
    assert call_results(last.ask("finish", run_id=run["id"])) == [
        "5 {'quote': 10} first",
        "saw inside",
        "b",
        "5 {'quote': 10} last",
    ]
    assert sorted(effects(tmp_path)) == ["gate", "gate", "look:inside", "look:outside"]


def test_c132_inner_gates_answered_by_two_processes_at_once_run_once_each(
    start_process: Begin, tmp_path: Path
) -> None:
    """For one gate, one answer wins; for two gates, both answers count, in any process."""
    both = [start_process(), start_process()]
    rounds = 6
    for n in range(rounds):
        run = both[0].ask("start", calls=nested([GATE, GATE]))
        both[1].ask("open", run_id=run["id"])
        first, second = (path[-1] for path in run["paths"])
        asked = (first, first) if n % 2 else (first, second)
        at = time.time() + 0.03
        for process, interrupt in zip(both, asked, strict=True):
            process.tell("answer", run_id=run["id"], interrupt=interrupt, at=at, data="go")
        said_so = [process.hear() for process in both]
        assert said_so.count("won") == len(set(asked))
        if n % 2:
            both[0].ask("answer", run_id=run["id"], interrupt=second, at=0, data="go")
        ends = [process.ask("finish", run_id=run["id"]) for process in both]
        assert call_results(ends[0]) == ["5 {'quote': 10} go"] * 2
        assert ends[0]["heard"] == ends[1]["heard"]
    assert effects(tmp_path).count("gate") == 2 * rounds


def start_and_kill(start_process: Begin, calls: Any) -> Any:
    """Start a run in a process that is killed once the run has settled."""
    process = start_process()
    run = process.ask("start", calls=calls)
    process.kill()
    return run


def wait_until_finished(folder: Path, run: Any, calls: int) -> None:
    """Wait until ``calls`` calls have finished, which would otherwise be lost with their process."""
    with nb.SQLiteStore(folder / "runs.db") as store:
        while sum(event.type == "tool_finished" for event in store.read(run["id"])) < calls:
            time.sleep(0.005)


def test_a_process_killed_between_two_inner_steps_leaves_the_rest_to_the_next_process(
    start_process: Begin, tmp_path: Path
) -> None:
    """Finished inner steps are not repeated, other steps continue, and no question is asked."""
    hang = tmp_path / "HANG"
    hang.touch()
    first = start_process()
    run = first.ask("start", calls=nested(LOOK, [GATE]), settle=False)
    wait_for("hangs", tmp_path)
    wait_until_finished(tmp_path, run, 2)
    first.kill()
    hang.unlink()
    second = start_process()
    second.ask("open", run_id=run["id"])
    [[*path, interrupt]] = second.ask("settle", run_id=run["id"])["paths"]
    assert path == ["agent", "manager", "banker", "gate"]
    second.ask("answer", run_id=run["id"], interrupt=interrupt, at=0, data="go")
    end = second.ask("finish", run_id=run["id"])
    assert call_results(end) == ["saw inside", "5 {'quote': 10} go"]
    assert sorted(effects(tmp_path)) == ["gate", "hangs", "look:inside", "look:outside"]


def test_c136_an_inner_call_whose_process_was_killed_is_asked_about(
    start_process: Begin, tmp_path: Path
) -> None:
    """The question is on the outermost run, with the path of the inner call."""
    first, second = start_process(), start_process()
    run = first.ask("start", calls=nested([["slow", {}]]), settle=False)
    wait_for("slow", tmp_path)
    wait_until_finished(tmp_path, run, 1)
    first.kill()
    second.ask("open", run_id=run["id"])
    asked = second.ask("settle", run_id=run["id"])
    [[*path, interrupt]] = asked["paths"]
    assert path == ["agent", "manager", "banker", "slow"]
    answer = {"interrupt": interrupt, "output": "slept, says the log"}
    second.ask("answer", run_id=run["id"], at=0, **answer)
    assert call_results(second.ask("finish", run_id=run["id"])) == ["slept, says the log"]
    assert effects(tmp_path).count("slow") == 1


def test_a_question_inside_two_agents_continues_at_its_line_or_asks_again(
    start_process: Begin, tmp_path: Path
) -> None:
    """If the process is alive, the body continues at its line; if it was killed, the body runs again."""
    first, second = start_process(), start_process()
    for killed, entered in ((False, 1), (True, 3)):
        run = first.ask("start", calls=nested([["asker", {}]]))
        if killed:
            first.kill()
        second.ask("open", run_id=run["id"])
        [[*_, interrupt]] = run["paths"]
        second.ask("answer", run_id=run["id"], interrupt=interrupt, at=0, output="blue")
        assert call_results(second.ask("finish", run_id=run["id"])) == ["blue"]
        assert effects(tmp_path).count("before") == entered
