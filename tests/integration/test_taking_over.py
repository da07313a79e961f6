"""A process takes over a run from a suspended or stuck process, which then runs no more of it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import nbagent as nb
from nbagent.core.base.events import RunTaken
from nbagent.core.journal.journal import Journal
from nbagent.core.stored.opening import answer_by_record
from tests.integration.processes import Begin, Process, effects, wait_for


class Stopped(NamedTuple):
    """The place where the first process is suspended."""

    calls: list[Any]
    seen: str
    """The last effect of the first process before that."""
    answers: dict[str, Any]
    """The answers of the second process, by tool."""
    did: list[str]
    """All effects of both processes at the end."""
    text: str


def inside(tool: str, calls: list[Any]) -> list[Any]:
    """The call of an inner agent that makes these calls."""
    return [[tool, {"prompt": json.dumps([calls])}]]


PLACES = {
    "in a body": Stopped(
        [["slow", {}]], "slow", {"slow": {"output": "known"}}, ["slow"], '["known"]'
    ),
    "in a body that may run again": Stopped(
        [["steady", {}]], "steady", {}, ["steady", "steady"], '["set"]'
    ),
    "in a body beside one that is asked": Stopped(
        [["slow", {}], ["ask", {"question": "a or b?"}]],
        "slow",
        {"slow": {"reason": "no"}, "ask": {"output": "b"}},
        ["slow"],
        "",
    ),
    "while the model of an agent inside streams": Stopped(
        inside("manager", inside("banker", [["look", {"at": "x"}]])),
        "hangs",
        {},
        ["look:x", "hangs"],
        "saw x",
    ),
    "at a line that asks": Stopped(
        [["asker", {}]],
        "before",
        {"asker": {"output": "blue"}},
        ["before", "before", "after"],
        '["blue"]',
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_c310_a_suspended_process_runs_nothing_more_of_a_run_that_was_taken_over(
    start_process: Begin, tmp_path: Path, place: str
) -> None:
    """Another process ends the run; the suspended process wakes, reports the same end, and changes nothing."""
    calls, seen, answers, did, text = PLACES[place]
    first, second = start_process(), start_process()
    hangs = tmp_path / "HANG"
    hangs.touch()  # while this file exists, the model does not answer
    run = first.ask("start", calls=calls, settle=False)
    wait_for(seen, tmp_path)
    if place == "at a line that asks":
        first.ask("settle", run_id=run["id"])
    first.tell("finish", run_id=run["id"])
    first.stop()
    hangs.unlink()
    second.ask("let_go")
    opened = second.ask("open", run_id=run["id"], take_over=True)
    assert opened["status"] in ("running", "interrupted", "completed")
    _answer_all(second, run["id"], answers)
    end = second.ask("finish", run_id=run["id"])
    assert end["status"] == "completed"
    assert text in end["text"]
    first.go_on()
    told = first.hear()
    assert told["status"] == "completed"
    assert told["text"] == end["text"]  # the run had ended before the process woke
    first.ask("let_go")
    assert first.ask("finish", run_id=run["id"])["journal"] == end["journal"]
    assert sorted(effects(tmp_path)) == sorted(did)


def _answer_all(process: Process, run_id: str, answers: dict[str, Any]) -> None:
    while answers:
        asked = process.ask("settle", run_id=run_id)["interrupts"]
        for tool in asked:
            answer = answers.pop(tool)
            told = process.ask("answer", run_id=run_id, interrupt=asked[tool], at=0, **answer)
            assert told == "won"


def test_c311_the_process_that_lost_a_run_learns_who_has_it_and_follows(
    start_process: Begin, tmp_path: Path
) -> None:
    """Awaiting the run raises an error with the new process; the old process's late result is ignored."""
    first, second = start_process(), start_process()
    run = first.ask("start", calls=[["slow", {}]], settle=False)
    wait_for("slow", tmp_path)
    first.tell("finish", run_id=run["id"])
    second.ask("open", run_id=run["id"], take_over=True)
    told = first.hear()
    assert re.search(rf"process {second.pid} on .* took over run", told["text"])
    first.ask("let_go")
    asked = second.ask("settle", run_id=run["id"])
    assert asked["interrupts"].keys() == {"slow"}
    assert f"process {first.pid}" in asked["messages"]["slow"]
    assert first.ask("settle", run_id=run["id"])["status"] == "interrupted"
    interrupt = asked["interrupts"]["slow"]
    second.ask("answer", run_id=run["id"], interrupt=interrupt, at=0, output="known")
    ends = [second.ask("finish", run_id=run["id"])]
    until = time.monotonic() + 60
    while first.ask("tell", run_id=run["id"])["status"] != "completed":
        assert time.monotonic() < until, "the one that had it does not follow"
    ends.append(first.ask("finish", run_id=run["id"]))
    assert [end["text"] for end in ends] == ['["known"]'] * 2
    assert effects(tmp_path) == ["slow"]


@pytest.mark.parametrize("held", [True, False], ids=["held", "let go"])
def test_c312_a_run_answered_by_its_record_continues_in_one_process_that_has_it(
    start_process: Begin, tmp_path: Path, held: bool
) -> None:
    """The first process takes the run, or, if it dropped its handle, another with the run open. The body runs once."""
    first, second = start_process(), start_process()
    run = first.ask("start", calls=[["gate", {"amount": 1}]])
    if not held:
        first.ask("forget", run_id=run["id"])
        second.ask("open", run_id=run["id"])
    store = nb.SQLiteStore(tmp_path / "runs.db")
    journal = Journal(run["id"], store)
    journal.catch_up()
    stamp = ("command line", time.time())
    answer = answer_by_record(journal, run["interrupts"]["gate"], nb.Restart(data="go"), stamp)
    assert answer.owner == ""
    takes = first if held else second
    assert takes.ask("finish", run_id=run["id"])["text"] == "[\"1 {'quote': 2} go\"]"
    [taken] = [event for event in store.read(run["id"]) if isinstance(event, RunTaken)]
    assert (taken.by, taken.owner.split(":")[1]) == ("vacancy", str(takes.pid))
    assert effects(tmp_path) == ["gate"]


def test_c313_of_two_processes_that_open_an_imported_run_one_takes_it(
    start_process: Begin, tmp_path: Path
) -> None:
    """No process drives the run: one takes it with its first write, and the other follows."""
    first, both = start_process(), [start_process(), start_process()]
    run = first.ask("start", calls=[["look", {"at": "it"}], ["slow", {}]], settle=False)
    wait_for("slow", tmp_path)
    document = nb.export_run(run["id"], store=tmp_path / "runs.db")
    first.ask("let_go")
    first.ask("finish", run_id=run["id"])
    nb.delete_run(run["id"], store=tmp_path / "runs.db")
    document["runs"][0]["rows"] = document["runs"][0]["rows"][:1]  # only the run's start
    nb.import_run(document, store=tmp_path / "runs.db")
    for process in both:
        process.tell("open", run_id=run["id"])
    for process in both:
        process.hear()
        process.ask("let_go")
    ends = [process.ask("finish", run_id=run["id"]) for process in both]
    assert ends[0]["text"] == ends[1]["text"] == '["saw it", "slept"]'
    events = nb.SQLiteStore(tmp_path / "runs.db").read(run["id"])
    taken = [event for event in events if isinstance(event, RunTaken)]
    assert [one.by for one in taken] == ["vacancy"]
    started = {event.owner for event in events if event.type == "tool_started"}
    assert started == {taken[0].owner}
    assert sorted(effects(tmp_path)) == ["look:it", "look:it", "slow", "slow"]
