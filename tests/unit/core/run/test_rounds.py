"""Runs that wait cost next to nothing, however many of one store a process has open."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbagent as nb
from nbagent.core.base.events import StoredEvent
from nbagent.core.journal.journal import Journal
from nbagent.core.run import rounds
from nbagent.core.stored.by_record import answer_by_record
from tests.until import until


class Counting(nb.SQLiteStore):
    """A store that counts how often it is looked at, and its runs are read."""

    stamps = reads = 0

    def stamp(self) -> object:
        """As it is."""
        self.stamps += 1
        return super().stamp()

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """As it is."""
        self.reads += 1
        return super().read(run_id, start)


async def test_waiting_runs_are_read_only_after_a_write_to_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look at the store for all of them; an answer that another process writes lets its run go on."""
    monkeypatch.setattr(rounds, "POLL", 0.01)
    store = Counting(tmp_path / "runs.db")
    model = nb.ScriptedModel(
        lambda messages: "done" if messages[2:] else nb.ScriptedModel.call("ask", question="which?")
    )
    agent = nb.Agent(model, tools=[nb.interrupt_tool("ask", output=str)], store=store)
    runs = [agent.run("go", attended=True) for _ in range(5)]
    for run in runs:
        await run.settled()
    seen = store.stamps
    await until(lambda: store.stamps > seen + 3)  # what was written last has been looked at
    reads, seen = store.reads, store.stamps
    await until(lambda: store.stamps > seen + 10)
    assert store.reads == reads
    journal = Journal(runs[2].id, nb.SQLiteStore(tmp_path / "runs.db"))
    journal.catch_up()
    answer_by_record(journal, runs[2].interrupts[0].id, nb.Respond("this"), ("command line", 1.0))
    assert (await runs[2]).text == "done"
    assert {run.status for run in runs if run is not runs[2]} == {"interrupted"}
