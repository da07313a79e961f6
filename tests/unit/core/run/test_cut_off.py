"""P17: text that a model sent before it was cut off is kept, whatever the reason."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import StoreError
from nbagent.core.base.events import ModelPartial, StoredEvent, parse
from nbagent.core.base.model import Discarded, Finished, ReasoningDelta, TextDelta, ToolCallDelta
from nbagent.core.run.run import session_of
from nbagent.notebook.export import view_of
from nbagent.notebook.render import plain
from nbagent.notebook.texts import TEXTS
from tests.until import turns, until

SAID = "The quick brown fox "
CUT = {"type": "text", "text": SAID, "nbagent": {"cut": "stopped"}}


class Speaker:
    """A model whose first answer stops early and then waits or fails; later answers are complete."""

    name = "speaker"

    def __init__(self, *first: Any, then: BaseException | None = None) -> None:
        self.first = first
        self.then = then
        self.asked: list[list[Any]] = []
        self.has_said = asyncio.Event()

    async def stream(self, request: Any) -> Any:
        """Stream the answer."""
        self.asked.append([dict(each) for each in request.messages])
        if len(self.asked) > 1:
            yield TextDelta("The whole answer.")
            yield Finished()
            return
        for delta in self.first:
            yield delta
        self.has_said.set()
        if self.then is not None:
            raise self.then
        await asyncio.Event().wait()


class Waited:
    """A store that may block, so that writes happen in a thread."""

    def __init__(self, path: Path) -> None:
        self._store = nb.SQLiteStore(path)
        self.fails = False
        self.holds = 0
        """The number of the append that waits for ``gate``, from 1; 0 for none."""
        self.gate = threading.Event()
        self.appends = 0

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        """Add events."""
        if self.fails:
            raise StoreError("the store is away")
        self.appends += 1
        if self.appends == self.holds:
            self.gate.wait(30)
        self._store.append(run_id, events, expected)

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """Read events."""
        return self._store.read(run_id, start)

    def run_ids(self) -> list[str]:
        """The runs."""
        return self._store.run_ids()


@pytest.fixture(params=["memory", "file", "waited"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store of each kind."""
    path = tmp_path / "runs.db"
    made = {"memory": nb.MemoryStore, "file": lambda: nb.SQLiteStore(path)}
    return made.get(request.param, lambda: Waited(path))()


async def started_run(model: Speaker, **options: Any) -> nb.Run:
    """A run with a subscriber, after the model has sent its first pieces."""
    run = nb.Agent(model, name="analyst").run("go", show=False, attended=True, **options)
    run.subscribe(lambda _event: None)
    await asyncio.wait_for(model.has_said.wait(), 30)
    return run


@pytest.mark.parametrize("by", ["code", "form"])
async def test_c400_the_partial_answer_of_a_stopped_run_is_kept(store: Any, by: str) -> None:
    """History and journal have the marked piece, whose token count is unknown; the next turn includes the piece."""
    model = Speaker(ReasoningDelta("Hm."), TextDelta("The quick "), TextDelta("brown fox "))
    run = await started_run(model, store=store)
    session_of(run).stop(by=by)
    await until(lambda: run.status == "cancelled")
    thought = {"type": "reasoning", "text": "Hm.", "nbagent": {"cut": "stopped"}}
    assert run.messages[1:] == ({"role": "assistant", "content": [thought, CUT]},)
    kinds = [event.type for event in run.journal]
    assert kinds == ["run_started", "model_responded", "run_cancelled"]
    assert run.usage.partial
    again = nb.Agent(model).run("And then?", messages=run.messages, show=False)
    assert (await again).text == "The whole answer."
    assert [m["role"] for m in model.asked[1]] == ["user", "assistant", "user"]
    opened = nb.open_run(run.id, agent=nb.Agent(model, name="analyst"), store=store)
    assert (await opened if asyncio.iscoroutine(opened) else opened).messages == run.messages


async def test_c400_the_partial_answer_of_a_chat_is_part_of_its_next_turn() -> None:
    """The model sees its own cut-off answer before the person's next message."""
    model = Speaker(TextDelta(SAID))
    chat = nb.Agent(model, name="analyst").chat()
    first = chat.send("go")
    first.subscribe(lambda _event: None)
    await asyncio.wait_for(model.has_said.wait(), 30)
    await first.cancel()
    await chat.send("And?")
    assert [m["content"][0]["text"] for m in model.asked[1]] == ["go", SAID, "And?"]


@pytest.mark.parametrize("then", [OSError("the line broke"), nb.errors.ModelError("overloaded")])
async def test_c400_a_partial_answer_before_a_failure_is_kept_and_requested_again(
    store: Any, then: Exception
) -> None:
    """A retry, and a run that starts from this history, request the whole answer without the piece."""
    model = Speaker(TextDelta(SAID), then=then)
    run = await started_run(model, store=store)
    with pytest.raises(nb.errors.ModelError) as caught:
        await run
    said = {**CUT, "nbagent": {"cut": "failed"}}
    assert run.messages[1:] == ({"role": "assistant", "content": [said]},)
    assert [m["role"] for m in caught.value.messages] == ["user"]
    history = run.messages
    run.retry()
    assert (await run).text == "The whole answer."
    assert [[m["role"] for m in asked] for asked in model.asked] == [["user"], ["user"]]
    assert [m["content"][0]["text"] for m in run.messages] == ["go", "The whole answer."]
    again = await nb.Agent(model).run(messages=json.loads(json.dumps(history)), show=False)
    assert again.text == "The whole answer."
    assert [m["role"] for m in model.asked[2]] == ["user"]


async def test_c400_a_partial_answer_before_a_lost_connection_is_kept_if_nothing_follows() -> None:
    """The provider's client reconnects by itself; the new answer replaces the piece."""
    lost = Discarded("the connection was lost")
    for first, kept in (
        ((TextDelta(SAID), lost), SAID),
        ((TextDelta(SAID), lost, TextDelta("A ")), "A "),
    ):
        run = await started_run(Speaker(*first, then=OSError("down")))
        with pytest.raises(nb.errors.ModelError):
            await run
        assert run.messages[1]["content"][0]["text"] == kept


async def test_c400_unreadable_parts_of_an_answer_are_not_kept() -> None:
    """An incomplete call and an empty text are dropped."""
    for first in ((), (ToolCallDelta(0, "c1", "pay", '{"to": "A'),), (TextDelta(" \n"),)):
        run = await started_run(Speaker(*first))
        await run.cancel()
        assert [m["role"] for m in run.messages] == ["user"]
    run = await started_run(Speaker(TextDelta(SAID), ToolCallDelta(0, "c1", "pay", '{"to": "A')))
    await run.cancel()
    assert run.messages[1]["content"] == [CUT]


async def test_c400_a_complete_answer_that_is_being_stored_is_not_kept_twice(
    tmp_path: Path,
) -> None:
    """A run stopped while its complete answer is written has the answer once."""
    store = Waited(tmp_path / "runs.db")
    store.holds = 2
    run = nb.Agent(nb.ScriptedModel(["The whole answer."])).run(
        "go", show=False, attended=True, store=store
    )
    run.subscribe(lambda _event: None)
    await until(lambda: store.appends == 2)
    stopped = asyncio.ensure_future(run.cancel())
    await turns()
    store.gate.set()
    await stopped
    assert [e.type for e in run.journal] == ["run_started", "model_responded", "run_cancelled"]
    assert run.journal[1].cut is None  # type: ignore[union-attr]


async def test_c400_the_end_is_kept_in_memory_while_the_store_fails(tmp_path: Path) -> None:
    """The piece is kept too; both are stored once the store works again."""
    store = Waited(tmp_path / "runs.db")
    run = await started_run(Speaker(TextDelta(SAID)), store=store)
    store.fails = True
    await run.cancel()
    assert run.messages[1]["content"] == [CUT]
    assert [e.type for e in store.read(run.id)] == ["run_started"]
    store.fails = False
    session_of(run).follow()
    await until(lambda: len(store.read(run.id)) == 3)
    assert [e.type for e in store.read(run.id)][1:] == ["model_responded", "run_cancelled"]


SCRIPT = """
import asyncio, os, signal, sys
import nbagent as nb
from nbagent.core.base.model import TextDelta

class Speaker:
    name = "speaker"
    async def stream(self, request):
        yield TextDelta("The quick brown fox ")
        asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

agent = nb.Agent(Speaker(), store=nb.SQLiteStore(sys.argv[1]))

async def main():
    run = agent.run("go", id="one", show=False)
    run.subscribe(lambda _event: None)
    await run

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_c400_the_partial_answer_before_ctrl_c_is_kept(tmp_path: Path) -> None:
    """The program ends at once, with the piece in its store."""
    path = tmp_path / "runs.db"
    command = [sys.executable, "-c", SCRIPT, str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout == "interrupted\n", done.stderr
    events = nb.SQLiteStore(path).read("one")
    assert [e.type for e in events] == ["run_started", "model_responded", "run_cancelled"]
    assert (events[1].text, events[1].cut) == (SAID, "stopped")  # type: ignore[union-attr]


KILLED = """
import asyncio, sys
import nbagent as nb
from nbagent.core.base.model import TextDelta
from nbagent.core.engine import response

response.KEPT_EVERY = 0.05

class Slow:
    name = "slow"

    async def stream(self, request):
        for number in range(100_000):
            yield TextDelta(f"{number} ")
            await asyncio.sleep(0.01)

async def main():
    run = nb.Agent(Slow(), name="slow", store=sys.argv[1]).run("go", id="one", show=False, attended=True)
    run.subscribe(lambda _: None)  # somebody watches
    await run

asyncio.run(main())
"""


@pytest.mark.parametrize("goes_on", [True, False], ids=["gone on with", "stopped"])
async def test_c410_a_partial_answer_is_kept_when_its_process_is_killed(
    tmp_path: Path, goes_on: bool
) -> None:
    """Whether the run is continued or stopped, the piece remains; a new request asks for the whole answer."""
    path = tmp_path / "runs.db"
    command = [sys.executable, "-c", KILLED, str(path)]
    victim = await asyncio.create_subprocess_exec(*command)
    try:
        await until(
            lambda: path.exists() and sum(e.type == "model_partial" for e in _events(path)) >= 3
        )
    finally:
        victim.kill()
        await victim.wait()
    kept = [e for e in _events(path) if e.type == "model_partial"]
    said = "".join(e.text for e in kept)
    assert [e.anew for e in kept] == [True] + [False] * (len(kept) - 1)
    assert said.split() == [str(number) for number in range(len(said.split()))]
    model = Speaker()
    model.asked.append([])  # so its next answer is complete
    agent = nb.Agent(model, name="slow", store=nb.SQLiteStore(path))
    run = await nb.open_run("one", agent=agent, attended=True, show=False)
    if goes_on:
        assert (await run).text == "The whole answer."
        assert [one["role"] for one in model.asked[1]] == ["user"]
    else:
        await run.cancel()
    [cut] = [e for e in run.journal if e.type == "model_responded" and e.cut]
    assert cut.text == said
    assert run.usage.partial
    assert said.strip()[:40] in plain.render(view_of(run, with_place=True)) or goes_on


async def test_c410_a_store_that_fails_during_a_stream_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next write contains the pieces that failed."""
    monkeypatch.setattr("nbagent.core.engine.response.KEPT_EVERY", 0.0)
    failures = [StoreError("the disk is full")]

    class Model:
        name = "model"

        async def stream(self, _request: Any) -> Any:
            for delta in (TextDelta("a"), TextDelta("b"), Finished()):
                yield delta

    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        append = store.append

        def shaky(run_id: str, events: Any, expected: int) -> None:
            if events and events[0].type == "model_partial" and failures:
                raise failures.pop()
            append(run_id, events, expected)

        monkeypatch.setattr(store, "append", shaky)
        run = nb.Agent(Model(), store=store).run("go", show=False)
        run.subscribe(lambda _: None)
        assert (await run).text == "ab"
        partials = [(e.text, e.anew) for e in run.journal if e.type == "model_partial"]  # type: ignore[union-attr]
        assert (failures, partials) == ([], [("ab", True)])


def _events(path: Path) -> list[Any]:
    with nb.SQLiteStore(path) as store:
        return store.read("one") if "one" in store.run_ids() else []


AGAIN = {
    "a lost connection": (Discarded("lost"), [("c", "", True)]),
    "text that was reasoning": (
        ReasoningDelta("ab", replaces_text=True),
        [("", "ab", True), ("c", "", False)],
    ),
}


@pytest.mark.parametrize("why", AGAIN)
async def test_c410_stored_pieces_of_a_stream_grow_with_it_and_restart_with_it(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost connection restarts the response; a run in memory stores no pieces."""
    monkeypatch.setattr("nbagent.core.engine.response.KEPT_EVERY", 0.0)
    again, after = AGAIN[why]
    said = [TextDelta("a"), TextDelta("b"), again, TextDelta("c"), Finished()]

    class Model:
        name = "model"

        async def stream(self, _request: Any) -> Any:
            for delta in said:
                yield delta

    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        for where, kept in (
            (store, [("a", "", True), ("b", "", False), *after]),
            (nb.MemoryStore(), []),
        ):
            run = nb.Agent(Model(), store=where).run("go", show=False)
            assert (await run).text == "c"
            partials = [e for e in run.journal if isinstance(e, ModelPartial)]
            assert [(e.text, e.reasoning, e.anew) for e in partials] == kept
            assert session_of(run).state.partial == ("", "")


async def test_c400_a_card_shows_the_partial_answer_and_where_it_ends() -> None:
    """A stopped and a failed run show the piece in the card."""
    run = await started_run(Speaker(TextDelta(SAID)))
    await run.cancel()
    drawn = plain.render(view_of(run, with_place=True))
    assert SAID.strip() in drawn
    assert drawn.index(SAID.strip()) < drawn.index("Stopped by code.")
    run = await started_run(Speaker(TextDelta(SAID), then=OSError("down")))
    with pytest.raises(nb.errors.ModelError):
        await run
    assert TEXTS["cut_failed"] in plain.render(view_of(run, with_place=True))


async def test_c400_a_partial_answer_in_a_forged_document_calls_nothing() -> None:
    """A document with a call in a cut-off answer is refused."""
    store = nb.MemoryStore()
    run = await started_run(Speaker(TextDelta(SAID)), store=store)
    await run.cancel()
    document = json.loads(json.dumps(nb.export_run(run.id, store=store)))
    row = document["runs"][0]["rows"][1]
    call = {"id": "c1", "name": "pay", "input": {}}
    row["data"] = json.dumps({**json.loads(row["data"]), "calls": [call]})
    assert parse(row["data"])
    with pytest.raises(nb.NbagentError, match="a response that was cut off has no complete call"):
        nb.import_run(document, store=nb.MemoryStore(), unverified=True)
