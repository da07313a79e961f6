"""Errors of a shared store that is in trouble, and what happens to its runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbagent as nb
from nbagent.core.base.events import RunCompleted, ToolFinished
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.rows import first_broken
from nbagent.core.run.run import session_of
from nbagent.core.stored.opening import answer_by_record
from nbagent.stores import postgres_listener
from tests import postgres as servers
from tests.contract import places
from tests.contract.test_stores import SHARED
from tests.until import until

call = nb.ScriptedModel.call

TROUBLES: dict[str, dict[str, str]] = {
    "full": {
        "sqlite": "the disk is full. Free some space",
        "postgresql": "the disk is full. Free some space",
    },
    "read_only": {
        "sqlite": "Copy the file to one",
        "postgresql": "is read-only. Use the primary server",
    },
    "locked": {
        "sqlite": "another process has locked it",
        "postgresql": "another process holds a lock",
    },
    "away": {"postgresql": "not currently accepting connections"},  # only servers are away
}
"""Part of the error message, besides the place, by trouble and store. Missing pairs cannot happen."""
CASES = [(kind, trouble) for trouble, told in TROUBLES.items() for kind in told]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A place of the kind that the test requests."""
    kind: str = request.param
    with ExitStack() as made:
        server = request.getfixturevalue("postgres") if kind == "postgresql" else None
        yield places.of_kind(kind, made, tmp_path, server)


class Office:
    """An agent with a tool that needs approval, and the payments that its tool made."""

    def __init__(self, place: Any) -> None:
        self.paid: list[int] = []
        self.during = ExitStack()
        """The trouble entered while the body runs, if the test sets one."""
        self.trouble = ""
        self.place = place
        self.agent = nb.Agent(nb.ScriptedModel(self._script), name="office")
        self.agent.tool(approval=True)(self.pay)

    @staticmethod
    def _script(messages: Any) -> Any:
        done = any(message["role"] == "tool" for message in messages)
        return "All paid." if done else [call("pay", amount=120)]

    async def pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append(amount)
        if self.trouble:
            self.during.enter_context(getattr(self.place, self.trouble)(self.agent.store))
        return f"paid {amount}"

    async def paused(self, store: Any) -> nb.Run:
        """A run that waits for the approval of a payment."""
        self.agent.store = store
        return await self.agent.run("Pay.", attended=True, show=False).settled()

    async def approved(self, run: nb.Run, *, anew: bool) -> None:
        """Approve the payment through the given handle, or through a new handle."""
        run = await self.opened(run.id) if anew else run
        await run.approve(run.interrupts[0])

    async def opened(self, run_id: str) -> nb.Run:
        """The run, opened in a store that is opened again."""
        self.agent.store = self.place.open()
        return await nb.open_run(run_id, agent=self.agent, attended=True, show=False)


@pytest.mark.parametrize(("place", "trouble"), CASES, indirect=["place"])
async def test_an_answer_that_a_store_cannot_write_runs_nothing_and_can_be_given_again(
    place: Any, trouble: str, request: pytest.FixtureRequest
) -> None:
    """The error names the place and what to do; the question stays open, and a later answer runs the call once."""
    told = TROUBLES[trouble][request.node.callspec.params["place"]]
    office = Office(place)
    store = place.open()
    run = await office.paused(store)
    with getattr(place, trouble)(store):
        with pytest.raises(nb.errors.StoreError, match=told) as error:
            await office.approved(run, anew=trouble == "read_only")
        assert place.told in str(error.value)
        assert office.paid == []
    run = await office.opened(run.id)
    assert [i.tool_name for i in run.interrupts] == ["pay"]
    await run.approve(run.interrupts[0])
    assert ((await run).text, office.paid) == ("All paid.", [120])
    rows = office.agent.store.rows(run.id)
    assert first_broken(run.id, rows) is None


@pytest.mark.parametrize(
    ("place", "trouble"),
    [
        case for case in CASES if case != ("sqlite", "read_only")
    ],  # an open file stays writable, despite that
    indirect=["place"],
)
async def test_a_result_that_a_store_cannot_write_is_kept_and_stored_once_it_can(
    place: Any, trouble: str, request: pytest.FixtureRequest
) -> None:
    """The store fails while a body runs: the run fails with that error, and a retry repeats no finished call."""
    told = TROUBLES[trouble][request.node.callspec.params["place"]]
    office = Office(place)
    office.trouble = trouble
    store = place.open()
    with office.during:
        run = await office.paused(store)
        run.approve(run.interrupts[0])
        with pytest.raises(nb.errors.StoreError, match=told):
            await run
        assert (run.status, office.paid) == ("failed", [120])
        office.during.close()
        assert ((await run.retry()).text, office.paid) == ("All paid.", [120])
        stored = store.read(run.id)
        assert [event.output for event in stored if isinstance(event, ToolFinished)] == ["paid 120"]
        assert first_broken(run.id, store.rows(run.id)) is None


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
async def test_c248_a_server_outage_during_a_pause_is_reported_once_and_loses_nothing(
    place: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Awaiting the run raises one error in the outage; afterwards the run takes an answer from any process."""
    monkeypatch.setattr(postgres_listener, "AGAIN", 0.05)
    office = Office(place)
    run = await office.paused(place.open())
    with place.away(office.agent.store):
        await until(lambda: "does not report" in caplog.text)
        with pytest.raises(nb.errors.StoreError, match="not currently accepting connections"):
            await run.approve(run.interrupts[0])
        with pytest.raises(nb.errors.StoreError, match="not currently accepting connections"):
            await run
    await until(lambda: session_of(run).error is None)
    other = await office.opened(run.id)
    await other.approve(other.interrupts[0])
    assert ((await run).text, office.paid) == ("All paid.", [120])
    assert caplog.text.count("does not report") == 1
    assert "Traceback" not in caplog.text


class Away(nb.SQLiteStore):
    """A file whose disk is sometimes unreachable."""

    is_away = False

    def _rows(self, run_id: str, start: int) -> Any:
        if self.is_away:
            raise nb.errors.StoreError("the disk is away")
        return super()._rows(run_id, start)

    def stamp(self) -> object:
        if self.is_away:
            raise nb.errors.StoreError("the disk is away")
        return super().stamp()


async def test_c248_a_file_that_was_unreadable_for_a_moment_is_followed_again(
    tmp_path: Path,
) -> None:
    """A process keeps following its store, and receives an answer from another process."""
    office = Office(None)
    store = Away(tmp_path / "runs.db")
    run = await office.paused(store)
    store.is_away = True
    await until(lambda: session_of(run).error is not None)
    with pytest.raises(nb.errors.StoreError, match="the disk is away"):
        await run
    store.is_away = False
    await until(lambda: session_of(run).error is None)
    journal = Journal(run.id, nb.SQLiteStore(tmp_path / "runs.db"))
    journal.catch_up()
    [asked] = run.interrupts
    answer_by_record(journal, asked.id, nb.Restart(), ("elsewhere", 1.0))
    assert ((await run).text, office.paid) == ("All paid.", [120])


DAMAGE: dict[str, tuple[str, bytes | int | None, str]] = {
    "bytes that are no text": ("data", b"\x7b\xff\xfe", "not an event"),
    "not JSON": ("data", b"{", "not an event"),
    "another object": ("data", b"{}", "not an event"),
    "a newer format": ("version", 99, "newer nbagent.*Upgrade"),
    "a row that is gone": ("", None, "it is missing"),
}


@pytest.mark.parametrize("place", SHARED, indirect=True)
async def test_a_damaged_run_is_reported_with_its_event_and_hides_no_other_run(place: Any) -> None:
    """The error names the event, run and store; all other runs are listed and answered."""
    office, store = Office(place), place.open()
    for name, (column, value, _) in DAMAGE.items():
        store.append(name, [RunCompleted(at=float(n), text=name) for n in range(3)], 0)
        place.damage(name, 1, column, value)
    run = await office.paused(store)
    assert store.run_ids() == [*DAMAGE, run.id]
    for name, (_, _, told) in DAMAGE.items():
        why = rf"(?s)Event 1 of run '{name}' in .*{re.escape(place.told)}.*other runs work.*{told}"
        with pytest.raises(nb.errors.StoreError, match=why):
            await nb.open_run(name, agent=office.agent, store=store, show=False)
        assert first_broken(name, store.rows(name)) == 1
    listed = {one.id: one.status for one in nb.runs(store)}
    assert listed == {run.id: "interrupted", **dict.fromkeys(DAMAGE, "unreadable")}
    await run.approve(run.interrupts[0])
    assert ((await run).text, office.paid) == ("All paid.", [120])


def completed(at: int) -> RunCompleted:
    return RunCompleted(at=float(at), text="x" * (300 * (at % 7)))


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A file and its log, as left by a killed process: most of the log is not yet copied to the file."""
    path = tmp_path_factory.mktemp("left") / "runs.db"
    with nb.SQLiteStore(path) as store:
        for run_id, first in (("a", 0), ("b", 0), ("a", 20), ("b", 20)):
            for n in range(first, first + 20):
                store.append(run_id, [completed(n)], n)
            if (run_id, first) == ("b", 0):
                store._retry_while_busy(store._empty_wal)
        return path.read_bytes(), path.with_name("runs.db-wal").read_bytes()


@given(data=st.data())
@settings(max_examples=30)
def test_a_truncated_or_damaged_log_loses_its_end_and_nothing_before(
    left_behind: tuple[bytes, bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """SQLite's log: events before the damage are whole and sealed, and each run continues after its last event.

    PostgreSQL repairs its log itself, and loses no event that it reported as stored.
    """
    file, log = left_behind
    at = data.draw(st.integers(0, len(log)))
    piece = data.draw(st.binary(max_size=40))
    path = tmp_path_factory.mktemp("cut") / "runs.db"
    path.write_bytes(file)
    path.with_name("runs.db-wal").write_bytes(log[:at] + piece)
    for each in path.parent.iterdir():
        each.chmod(0o600)
    with nb.SQLiteStore(path) as store:
        lengths = {head.run_id: head.length for head in store.heads()}
        assert min(lengths.values()) >= 20
        assert lengths["b"] == 20 or lengths["a"] == 40  # the order of the commits
        for run_id, length in lengths.items():
            assert store.read(run_id) == [completed(n) for n in range(length)]
            store.append(run_id, [completed(length)], length)
            assert first_broken(run_id, store.rows(run_id)) is None


def test_data_reported_as_stored_by_a_server_survives_a_crash(postgres: Path) -> None:
    """The server is killed as by a power cut; the same store works once the server runs again."""
    with nb.SQLStore(servers.database(postgres)) as store:
        for n in range(20):
            store.append("run", [completed(n)], n)
        servers.end_abruptly(postgres)
        assert store.read("run") == [completed(n) for n in range(20)]
        store.append("run", [completed(20)], 20)
        assert first_broken("run", store.rows("run")) is None
