"""One store, several real processes: what one pauses, another answers, and nothing runs twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import Begin, beginning, effects, wait_for

GATE = [["gate", {"amount": 100}]]
ASK = [["ask", {"question": "a or b?"}]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Begins processes on one store."""
    with beginning(tmp_path) as new:
        yield new


@pytest.mark.parametrize(
    ("calls", "tool", "answer", "text"),
    [
        (ASK, "ask", {"output": "b"}, '["b"]'),
        (GATE, "gate", {"data": "go"}, "[\"100 {'quote': 200} go\"]"),
    ],
)
def test_c92_a_run_answered_in_another_process_completes_there_and_the_first_follows(
    begin: Begin, tmp_path: Path, calls: Any, tool: str, answer: Any, text: str
) -> None:
    """The form in the notebook changes by itself when somebody answers from elsewhere."""
    first, second = begin(), begin()
    run = first.ask("start", calls=calls)
    assert run["status"] == "interrupted"
    first.tell("finish", run_id=run["id"])
    assert second.ask("open", run_id=run["id"]) == run
    answered = second.ask(
        "answer", run_id=run["id"], interrupt=run["interrupts"][tool], at=0, **answer
    )
    assert answered == "won"
    there, here = second.ask("finish", run_id=run["id"]), first.hear()
    assert there["status"] == here["status"] == "completed"
    assert there["text"] == here["text"] == text
    assert there["heard"] == here["heard"]
    assert effects(tmp_path) == (["gate"] if tool == "gate" else [])


def test_c113_state_and_answer_reach_the_tool_in_a_new_process_after_a_kill(
    begin: Begin, tmp_path: Path
) -> None:
    """P6: the process that paused is killed; another one has the input, the state, and goes on."""
    first = begin()
    run = first.ask("start", calls=GATE)
    first.kill()
    second = begin()
    opened = second.ask("open", run_id=run["id"])
    assert opened == run
    assert opened["states"] == {"gate": {"quote": 200}}
    assert opened["inputs"] == {"gate": {"amount": 100}}
    second.ask("answer", run_id=run["id"], interrupt=run["interrupts"]["gate"], at=0, data="yes")
    assert second.ask("finish", run_id=run["id"])["text"] == "[\"100 {'quote': 200} yes\"]"
    assert effects(tmp_path) == ["gate"]


def test_c132_of_two_processes_that_answer_at_once_one_wins_and_the_tool_runs_once(
    begin: Begin, tmp_path: Path
) -> None:
    """P2 and P3, raced again and again: the other is told who and when, and both end alike."""
    both = [begin(), begin()]
    runs = 15
    for _ in range(runs):
        run = both[0].ask("start", calls=[*GATE, *ASK])
        both[1].ask("open", run_id=run["id"])
        for tool, answer in (("gate", "data"), ("ask", "output")):
            at = time.time() + 0.03
            for name, process in zip(("ann", "bob"), both, strict=True):
                process.tell(
                    "answer",
                    run_id=run["id"],
                    interrupt=run["interrupts"][tool],
                    at=at,
                    **{answer: name},
                )
            said = [process.hear() for process in both]
            assert sorted(s == "won" for s in said) == [False, True]
            [told] = [s for s in said if s != "won"]
            assert "was answered already" in told
            assert "by code at 20" in told
        ends = [process.ask("finish", run_id=run["id"]) for process in both]
        assert ends[0]["status"] == "completed"
        assert ends[0]["text"] == ends[1]["text"]
        assert ends[0]["heard"] == ends[1]["heard"]
        assert ends[0]["heard"].count("resolved") == 2
    assert effects(tmp_path) == ["gate"] * runs


def test_a_slow_call_of_another_process_is_waited_for_and_not_run_again(
    begin: Begin, tmp_path: Path
) -> None:
    """Whoever opens a run under way sees its end, as the one who drives it does."""
    first, second = begin(), begin()
    run = first.ask("start", calls=[["slow", {}]], settle=False)
    wait_for("slow", tmp_path)
    opened = second.ask("open", run_id=run["id"])
    assert opened["status"] == "running"
    second.tell("finish", run_id=run["id"])
    first.ask("let_go")
    assert second.hear()["text"] == '["slept"]'
    assert effects(tmp_path) == ["slow"]


def test_c136_a_call_whose_process_was_killed_is_not_run_again_and_awaiting_says_so(
    begin: Begin, tmp_path: Path
) -> None:
    """Whether it took effect is not known; a person may look, but nothing is repeated in silence."""
    first, second = begin(), begin()
    run = first.ask("start", calls=[["slow", {}]], settle=False)
    wait_for("slow", tmp_path)
    first.kill()
    assert second.ask("open", run_id=run["id"])["status"] == "running"
    end = second.ask("finish", run_id=run["id"])
    assert end["status"] == "running"
    assert "'slow' (by process" in end["text"]
    assert "not run again" in end["text"]
    assert effects(tmp_path) == ["slow"]


def test_a_killed_process_leaves_its_answered_call_to_whoever_opens_the_run(
    begin: Begin, tmp_path: Path
) -> None:
    """An answer that was stored counts, also where its process died before the tool was started."""
    first = begin()
    run = first.ask("start", calls=GATE)
    first.tell("answer_and_die", run_id=run["id"], interrupt=run["interrupts"]["gate"], data="yes")
    first.died()
    assert effects(tmp_path) == []
    second = begin()
    second.ask("open", run_id=run["id"])
    assert second.ask("finish", run_id=run["id"])["text"] == "[\"100 {'quote': 200} yes\"]"
    assert effects(tmp_path) == ["gate"]


def test_a_paused_process_takes_over_when_the_one_that_answered_is_killed(
    begin: Begin, tmp_path: Path
) -> None:
    """The run in the notebook does not hang because a script that answered it went away."""
    first, second = begin(), begin()
    run = first.ask("start", calls=GATE)
    second.ask("open", run_id=run["id"])
    second.tell("answer_and_die", run_id=run["id"], interrupt=run["interrupts"]["gate"], data="yes")
    second.died()
    assert first.ask("finish", run_id=run["id"])["status"] == "completed"
    assert effects(tmp_path) == ["gate"]


def test_a_body_that_waits_at_its_line_goes_on_there_when_answered_elsewhere(
    begin: Begin, tmp_path: Path
) -> None:
    """``ctx.ask`` keeps its locals: the process that has them goes on, the one that answers follows."""
    first, second = begin(), begin()
    run = first.ask("start", calls=[["asker", {}]])
    assert run["status"] == "interrupted"
    second.ask("open", run_id=run["id"])
    assert (
        second.ask(
            "answer", run_id=run["id"], interrupt=run["interrupts"]["asker"], at=0, output="blue"
        )
        == "won"
    )
    ends = [process.ask("finish", run_id=run["id"]) for process in (first, second)]
    assert [e["text"] for e in ends] == ['["blue"]'] * 2
    assert effects(tmp_path) == ["before", "after"]
