"""Several real processes with one store: one pauses a run, another answers, and no call runs twice."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.run import heartbeat
from tests.integration.processes import Begin, effects, wait_for

GATE = [["gate", {"amount": 100}]]
ASK = [["ask", {"question": "a or b?"}]]


@pytest.mark.parametrize(
    ("calls", "tool", "answer", "text"),
    [
        (ASK, "ask", {"output": "b"}, '["b"]'),
        (GATE, "gate", {"data": "go"}, "[\"100 {'quote': 200} go\"]"),
    ],
)
def test_c92_a_run_answered_in_another_process_completes_there_and_the_first_follows(
    start_process: Begin, tmp_path: Path, calls: Any, tool: str, answer: Any, text: str
) -> None:
    """The first process, like a notebook, gets the answer of the other process by itself."""
    first, second = start_process(), start_process()
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
    start_process: Begin, tmp_path: Path
) -> None:
    """P6: the paused process is killed; another process has the input and the state, and continues."""
    first = start_process()
    run = first.ask("start", calls=GATE)
    first.kill()
    second = start_process()
    opened = second.ask("open", run_id=run["id"])
    assert opened == run
    assert opened["states"] == {"gate": {"quote": 200}}
    assert opened["inputs"] == {"gate": {"amount": 100}}
    second.ask("answer", run_id=run["id"], interrupt=run["interrupts"]["gate"], at=0, data="yes")
    assert second.ask("finish", run_id=run["id"])["text"] == "[\"100 {'quote': 200} yes\"]"
    assert effects(tmp_path) == ["gate"]


def test_a_slow_call_of_another_process_is_awaited_and_not_run_again(
    start_process: Begin, tmp_path: Path
) -> None:
    """A process that opens a running run sees its end, like the process that drives the run."""
    first, second = start_process(), start_process()
    run = first.ask("start", calls=[["slow", {}]], settle=False)
    wait_for("slow", tmp_path)
    opened = second.ask("open", run_id=run["id"])
    assert opened["status"] == "running"
    second.tell("finish", run_id=run["id"])
    first.ask("let_go")
    assert second.hear()["text"] == '["slept"]'
    assert effects(tmp_path) == ["slow"]


LOST = [
    ({"output": "as the bank says"}, '["as the bank says"]', 1),
    ({}, '["slept"]', 2),
    ({"reason": "too late now"}, "It may or may not have taken effect", 1),
]


@pytest.mark.parametrize(("answer", "text", "times"), LOST, ids=["result", "again", "fail"])
def test_c136_a_person_settles_a_call_whose_process_was_killed(
    start_process: Begin, tmp_path: Path, answer: dict[str, str], text: str, times: int
) -> None:
    """The question is asked once, in any process; no call is repeated without an answer."""
    first, others = start_process(), [start_process(), start_process()]
    run = first.ask("start", calls=[["slow", {}]], settle=False)
    wait_for("slow", tmp_path)
    first.kill()
    for other in others:
        other.tell("open", run_id=run["id"])
    for other in others:
        other.hear()
        other.ask("let_go")
    asked = [other.ask("settle", run_id=run["id"]) for other in others]
    assert asked[0] == asked[1]
    assert asked[0]["status"] == "interrupted"
    assert "slow was running in process" in asked[0]["messages"]["slow"]
    [interrupt] = asked[0]["interrupts"].values()
    assert effects(tmp_path) == ["slow"]
    said = others[1].ask("answer", run_id=run["id"], interrupt=interrupt, at=0, **answer)
    assert said == "won"
    ends = [other.ask("finish", run_id=run["id"]) for other in others]
    assert ends[0]["text"] == ends[1]["text"]
    assert text in ends[0]["text"]
    assert ends[0]["journal"].count("interrupted") == 1
    assert effects(tmp_path) == ["slow"] * times


def test_c136_without_a_person_awaiting_a_run_names_the_lost_call(
    start_process: Begin, tmp_path: Path
) -> None:
    """The error also says how to answer."""
    first, second = start_process(), start_process()
    run = first.ask("start", calls=[["slow", {}]], settle=False)
    wait_for("slow", tmp_path)
    first.kill()
    second.ask("open", run_id=run["id"], attended=False)
    end = second.ask("finish", run_id=run["id"])
    assert end["status"] == "interrupted"
    assert "HumanInputRequired" in end["text"]
    assert "slow was running in process" in end["text"]
    assert "nb.Restart()} to run it again" in end["text"]
    assert effects(tmp_path) == ["slow"]


@pytest.mark.parametrize("attended", [True, False])
def test_c136_a_lost_call_beside_a_body_that_waits_here_is_asked_about_too(
    start_process: Begin, tmp_path: Path, *, attended: bool
) -> None:
    """P7: a settled run continues only with a person, and so does a call whose process died."""
    first, second = start_process(), start_process()
    run = first.ask("start", calls=[["slow", {}], ["twice", {}]], settle=False)
    wait_for("slow", tmp_path)
    while not first.ask("tell", run_id=run["id"])["interrupts"]:
        pass
    first.kill()
    opened = second.ask("open", run_id=run["id"], attended=attended)
    color = opened["interrupts"]["twice"]
    second.ask("answer", run_id=run["id"], interrupt=color, at=0, output="blue")
    while "slow" not in second.ask("tell", run_id=run["id"])["interrupts"]:
        pass
    settled = second.ask("settle", run_id=run["id"])
    assert list(settled["interrupts"]) == ["slow", "twice"]
    assert settled["interrupts"]["twice"] != color
    size, lost = settled["interrupts"]["twice"], settled["interrupts"]["slow"]
    assert second.ask("answer", run_id=run["id"], interrupt=size, at=0, output="L") == "won"
    assert list(second.ask("settle", run_id=run["id"])["interrupts"]) == ["slow"]
    second.ask("answer", run_id=run["id"], interrupt=lost, at=0, output="slept")
    assert "slept" in second.ask("finish", run_id=run["id"])["text"]
    assert effects(tmp_path).count("slow") == 1


def test_a_slow_call_on_another_machine_is_awaited_while_its_heartbeat_continues(
    start_process: Begin, tmp_path: Path
) -> None:
    """Only the heartbeat of the other process is visible; the run names the process that it waits for."""
    first, second = start_process("another machine"), start_process()
    run = first.ask("start", calls=[["slow", {}]], settle=False)
    wait_for("slow", tmp_path)
    second.ask("open", run_id=run["id"])
    while "running, waiting for process" not in second.ask("shown", run_id=run["id"]):
        pass
    second.tell("finish", run_id=run["id"])
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        owner = store.read(run["id"])[-1].owner
        before = store.beats(owner)
        while store.beats(owner) < before + 2 * heartbeat.MISSED:
            time.sleep(0.05)
    first.ask("let_go")
    assert second.hear()["text"] == '["slept"]'


def test_c136_a_call_on_another_machine_is_lost_when_its_heartbeat_has_stopped(
    start_process: Begin, tmp_path: Path
) -> None:
    """A restarted container counts as another machine, so no process waits for its calls forever."""
    first, second = start_process("another machine"), start_process()
    run = first.ask("start", calls=[["slow", {}]], settle=False)
    wait_for("slow", tmp_path)
    first.kill()
    second.ask("open", run_id=run["id"], attended=False)
    end = second.ask("finish", run_id=run["id"])
    assert "slow was running in process" in end["text"]
    assert effects(tmp_path) == ["slow"]


def test_c136_an_idempotent_call_whose_process_was_killed_runs_again(
    start_process: Begin, tmp_path: Path
) -> None:
    """The call runs again in one process that takes the run over, without a question."""
    first, others = start_process(), [start_process(), start_process()]
    run = first.ask("start", calls=[["steady", {}]], settle=False)
    wait_for("steady", tmp_path)
    first.kill()
    for other in others:
        other.ask("let_go")
        other.tell("open", run_id=run["id"])
    for other in others:
        other.hear()
    ends = [other.ask("finish", run_id=run["id"]) for other in others]
    assert [end["text"] for end in ends] == ['["set"]'] * 2
    assert effects(tmp_path) == ["steady"] * 2


def test_a_killed_process_leaves_its_answered_call_to_the_next_process(
    start_process: Begin, tmp_path: Path
) -> None:
    """A stored answer counts even if its process died before the tool started."""
    first = start_process()
    run = first.ask("start", calls=GATE)
    first.tell("answer_and_die", run_id=run["id"], interrupt=run["interrupts"]["gate"], data="yes")
    first.died()
    assert effects(tmp_path) == []
    second = start_process()
    second.ask("open", run_id=run["id"])
    assert second.ask("finish", run_id=run["id"])["text"] == "[\"100 {'quote': 200} yes\"]"
    assert effects(tmp_path) == ["gate"]


def test_a_paused_process_takes_over_when_the_one_that_answered_is_killed(
    start_process: Begin, tmp_path: Path
) -> None:
    """A notebook's run does not hang if the script that answered it was killed."""
    first, second = start_process(), start_process()
    run = first.ask("start", calls=GATE)
    second.ask("open", run_id=run["id"])
    second.tell("answer_and_die", run_id=run["id"], interrupt=run["interrupts"]["gate"], data="yes")
    second.died()
    assert first.ask("finish", run_id=run["id"])["status"] == "completed"
    assert effects(tmp_path) == ["gate"]


def test_a_body_that_waits_at_its_line_continues_there_when_answered_elsewhere(
    start_process: Begin, tmp_path: Path
) -> None:
    """``ctx.ask`` keeps local variables: the first process continues, the process that answers follows."""
    first, second = start_process(), start_process()
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
