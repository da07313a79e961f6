"""Waiting runs cost almost nothing, however many runs of one store a process has open."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbagent as nb
from nbagent.core.base.events import StoredEvent
from nbagent.core.journal.journal import Journal
from nbagent.core.run import polling
from nbagent.core.stored.opening import answer_by_record
from tests.until import until


class Counting(nb.SQLiteStore):
    """A store that counts its stamps and reads."""

    stamps = reads = 0

    def stamp(self) -> object:
        """Count the call."""
        self.stamps += 1
        return super().stamp()

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """Count the call."""
        self.reads += 1
        return super().read(run_id, start)


async def test_waiting_runs_are_read_only_after_a_write_to_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One check of the store serves all runs; an answer from another process continues its run."""
    monkeypatch.setattr(polling, "POLL", 0.01)
    store = Counting(tmp_path / "runs.db")
    model = nb.ScriptedModel(
        lambda messages: "done" if messages[2:] else nb.ScriptedModel.call("ask", question="which?")
    )
    agent = nb.Agent(model, tools=[nb.interrupt_tool("ask", output=str)], store=store)
    runs = [agent.run("go", attended=True) for _ in range(5)]
    for run in runs:
        await run.settled()
    seen = store.stamps
    await until(lambda: store.stamps > seen + 3)  # the last writes have been checked
    reads, seen = store.reads, store.stamps
    await until(lambda: store.stamps > seen + 10)
    assert store.reads == reads
    journal = Journal(runs[2].id, nb.SQLiteStore(tmp_path / "runs.db"))
    journal.catch_up()
    answer_by_record(journal, runs[2].interrupts[0].id, nb.Respond("this"), ("command line", 1.0))
    assert (await runs[2]).text == "done"
    assert {run.status for run in runs if run is not runs[2]} == {"interrupted"}
