"""An inbox's card: forms of many runs of a store, all answered in this card."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import ipywidgets
import pytest

import nbagent as nb
from nbagent.core.base.process import this_process
from nbagent.core.hooks import hooks
from nbagent.core.run.host import ScriptHost
from nbagent.core.stored.inbox import Continuation, InboxEntry
from nbagent.notebook import kernel
from nbagent.notebook.cards.inbox_card import InboxCard
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.inbox import InboxView, _is_earlier
from nbagent.notebook.wire import FormItem, Item, NoticeItem, RecordItem
from tests.until import until

call = nb.ScriptedModel.call
LOST = """
import asyncio, os, signal
import nbagent as nb

async def _wire(to: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)

model = nb.ScriptedModel([nb.ScriptedModel.call("_wire", to="Ada")])
agent = nb.Agent(model, name="lost banker", store=nb.SQLiteStore({path!r}), tools=[nb.tool(_wire)])
agent.run_sync("Pay", id="r1")
"""


async def _wire(to: str) -> str:
    """Wire."""
    return f"sent to {to}"


class Played(InboxCard):
    """A card that records its messages to the page."""

    def __init__(self, store: Any, **options: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        super().__init__(InboxEntry(store, **options), "runs.db")

    def send(self, content: Any, buffers: Any = None) -> None:
        self.sent.append(content)

    @property
    def items(self) -> list[Item]:
        return self.view.snapshot().items

    @property
    def forms(self) -> list[FormItem]:
        return [item for item in self.items if isinstance(item, FormItem)]

    @property
    def records(self) -> list[RecordItem]:
        return [item for item in self.items if isinstance(item, RecordItem)]

    @property
    def notices(self) -> list[NoticeItem]:
        return [item for item in self.items if isinstance(item, NoticeItem)]

    def says(self, **message: Any) -> None:
        self._handle(message)

    async def press(self, item: FormItem, action: str = "approve", **more: Any) -> dict[str, Any]:
        number = len(self.sent)
        self.says(
            type="answer", interrupt=item.interrupt, submission=str(number), action=action, **more
        )
        told: list[dict[str, Any]] = []
        await until(
            lambda: bool(
                told.extend(m for m in self.sent if m.get("submission") == str(number)) or told
            )
        )
        return told[0]


def banker(store: Any, name: str = "banker", *, calls: int = 1, tool: str = "pay") -> nb.Agent:
    """An agent that asks before each of its calls."""
    model = nb.ScriptedModel([[call(tool, to=f"P{n}", amount=n) for n in range(calls)], "Settled."])

    async def pay(to: str, amount: int) -> str:
        """Pay."""
        return f"paid {to}"

    made = nb.tool(pay, name=tool, approval=True)
    return nb.Agent(model, name=name, store=store, tools=[made])


@pytest.fixture
def store(tmp_path: Path) -> nb.SQLiteStore:
    return nb.SQLiteStore(tmp_path / "runs.db")


async def test_c280_questions_of_several_runs_are_one_table_and_each_run_continues_in_its_place(
    store,
):
    """Questions of one agent and tool are a table; an answer resumes its run, and a record replaces the form."""
    agents = [banker(store, calls=2) for _ in range(2)]
    first, second = [await agent.run("Pay them").settled() for agent in agents]
    card = Played(store)
    await until(lambda: len(card.forms) == 4)
    assert len({form.group for form in card.forms}) == 1
    assert all(fact.value == "in this notebook" for form in card.forms for fact in form.facts[-1:])
    assert (await card.press(card.forms[0]))["ok"]
    await until(lambda: len(card.records) == 1)
    assert (await card.press(card.forms[0], "reject", reason="no"))["ok"]
    await until(lambda: len(card.records) == 2)
    assert (await first).text == "Settled."
    assert [r.decision.partition(",")[0] for r in card.records] == ["approved", "rejected · “no”"]
    assert second.status == "interrupted"
    asked = card.forms[0]
    await second.reject(second.interrupts[0], "code was faster")
    late = await card.press(asked)
    assert not late["ok"]
    assert "by code" in late["errors"][0]["message"] or "not wait" in late["errors"][0]["message"]
    await until(lambda: len(card.forms) == 1)
    assert "by code" in card.records[2].decision


async def test_c406_questions_of_an_earlier_kernel_of_their_cell_are_listed_separately(
    store, monkeypatch
):
    """They are marked, in no table and below the others; other cells' questions are not separated."""

    class Cells(ScriptHost):
        at: tuple[str, str] | None = None

        def cell(self) -> tuple[str, str] | None:
            return self.at

    cells = Cells()
    monkeypatch.setattr(hooks, "find_host", lambda: cells)

    bankers = []  # else a banker of another test, which is still in memory, may continue a run

    async def asks(cell: str, kept: Any = store) -> nb.Run:
        cells.at = (cell, "1") if cell else None
        bankers.append(banker(kept))
        return await bankers[-1].run("Pay them", attended=True, show=False).settled()

    machine, _, start, host = this_process().split(":", 3)
    for cell in ("a", "b", ""):
        run = await asks(cell, nb.MemoryStore())
        begun, *events = run.journal
        owner = f"{machine}:999999:{start}:{host}"
        begun = begun.model_copy(update={"owner": owner})
        store.append(f"old {cell}", [begun, *events], 0)
        await run.cancel()
    card = Played(store)
    await until(lambda: len(card.forms) == 3)
    assert [item.type for item in card.items] == ["form"] * 3
    assert len({form.group for form in card.forms}) == 1
    new = await asks("a")
    await until(lambda: len(card.forms) == 4)
    *forms, apart = card.forms
    asked = [form.interrupt.partition("/")[0] for form in card.forms]
    assert asked == ["old b", "old ", new.id, "old a"]
    assert [item.type for item in card.items] == ["form"] * 3 + ["notice", "form"]
    assert "If you answer both runs, the work may be done twice" in card.notices[0].text
    assert all(form.group for form in forms)
    assert apart.group == ""
    assert apart.note.startswith("From an earlier run of this cell.")
    assert [TEXTS["inbox_earlier"] in (form.note or "") for form in forms] == [False] * 3
    assert TEXTS["inbox_earlier"] in card.bundle()["text/html"]
    assert (await card.press(forms[2]))["ok"]
    await new
    await until(lambda: len(card.records) == 1)
    assert card.forms[-1].note == apart.note, "also once the later run has ended"
    assert (await card.press(apart, "reject", reason="done already"))["ok"]
    await until(lambda: len(card.records) == 2)
    await until(lambda: "earlier" not in [notice.key for notice in card.notices])
    later = Played(store)
    await until(lambda: len(later.forms) == 2)
    assert "earlier" not in [notice.key for notice in later.notices]


def test_c406_a_cell_that_has_started_a_run_here_is_known_to_a_later_inbox(monkeypatch):
    """The new inbox never read the later run, which has ended, but the kernel stores the cell."""
    monkeypatch.setattr(kernel, "cells_with_runs", {"a"})
    source = SimpleNamespace(is_earlier=lambda _asked: False)

    def is_earlier(cell: str, process: str) -> bool:
        run = SimpleNamespace(cell=cell, started_by=process)
        return _is_earlier(SimpleNamespace(run=run), source)

    assert is_earlier("a", "elsewhere:1:2")
    assert not is_earlier("b", "elsewhere:1:2")
    assert not is_earlier("a", this_process())


async def test_c281_new_questions_are_appended_and_typed_text_stays(store):
    """A second run asks while somebody types in the first form: that form is not sent again."""
    agents = [banker(store, "one"), banker(store, "two", tool="send")]
    await agents[0].run("Pay").settled()
    card = Played(store)

    def puts() -> list[str]:
        ops = [op for message in card.sent for op in message.get("ops", ())]
        return [op["item"]["tool"] for op in ops if op["op"] == "put"]

    card.says(type="hello")
    await until(lambda: bool(puts()))
    shown = card.forms[0]
    card.says(type="focus", busy=True)
    card.sent.clear()
    await agents[1].run("Send").settled()
    await until(lambda: len(card.forms) == 2)

    await until(lambda: bool(puts()))
    assert puts() == ["send"]
    assert card.forms[0] == shown
    assert card.view.snapshot().head.status_text == "2 questions · 1 new"
    card._handle_table_message({"type": "want", "filters": {"tool": "pay"}})
    await until(lambda: len(card.forms) == 1)
    assert card.forms[0].tool == "pay"
    await until(lambda: card.table.state["found"].startswith("1 question"))
    static = card.bundle()
    assert "Not answered." in static["text/html"]
    assert "<button" not in static["text/html"]


async def test_previews_and_widgets_beside_a_form_are_in_the_inbox_too(store):
    """The preview is updated after edits; it and the widget of a field end with their question."""
    model = nb.ScriptedModel([[call("pay", to="Ada", amount=3)], "Settled."])
    agent = nb.Agent(model, name="previewer", store=store)
    slider = nb.FormHint(widget=lambda: ipywidgets.IntSlider(max=50))

    @agent.tool(approval=True, editable=True, preview=lambda asked: f"{asked.to}: {asked.amount}")
    def pay(to: str, amount: Annotated[int, slider]) -> str:
        """Pay."""
        return f"paid {to} {amount}"

    run = await agent.run("Pay").settled()
    card = Played(store)

    def shown() -> list[str]:
        return [piece.data for form in card.forms for piece in form.preview]

    await until(lambda: shown() == ["Ada: 3"])
    [row] = card.rows
    asked = card.forms[0]
    assert [field["key"] for field in asked.spec["root"]["fields"]] == ["to"]
    drafts = {"fields": {"to": {"text": "Bob"}}}
    card.says(type="drafts", interrupt=asked.interrupt, drafts=drafts)
    row.children[1].value = 9
    await until(lambda: shown() == ["Bob: 9"])
    assert card.forms[0].actions[0].label == "Approve with changes"
    assert (await card.press(asked, drafts=drafts))["ok"]
    assert "paid Bob 9" in str((await run).messages)
    await until(lambda: not card.rows)


async def test_a_preview_of_a_remote_run_is_marked_as_remote(store):
    """The tool's function in this process may read other data, so it is not called."""
    agent = nb.Agent(nb.ScriptedModel([call("pay", to="Ada", amount=3)]), name="away", store=store)

    @agent.tool(approval=True, preview=lambda asked: "never")
    def pay(to: str, amount: int) -> str:
        """Pay."""
        return f"paid {to} {amount}"

    run = await agent.run("Pay").settled()
    waiting = InboxEntry(store)
    waiting.continuation = lambda _asked: Continuation("there", "100@far:1")  # type: ignore[method-assign]
    view = InboxView("runs.db")
    view.look(waiting.look(), waiting)
    [form] = [item for item in view.snapshot().items if isinstance(item, FormItem)]
    assert (
        form.preview_note == "The preview is in the run's own card, in the process that is waiting."
    )
    await run.cancel()


async def test_c283_a_run_that_no_process_drives_is_marked_and_can_continue_here(store):
    """The process was killed in a call; one press opens the run, which asks about that call."""
    script = LOST.format(path=str(store.path))
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await killed.wait() < 0
    card = Played(store)
    await until(lambda: bool(card.notices))
    [notice] = card.notices
    assert "No process is running r1" in notice.text
    assert 'nb.open_run("r1", agent=agent, store=store)' in notice.text
    assert not notice.actions
    agent = nb.Agent(nb.ScriptedModel(["Settled."]), name="lost banker", tools=[nb.tool(_wire)])
    await until(lambda: bool(card.notices[0].actions))
    card.says(type="press", notice="stranded", action="go_on")
    await until(lambda: len(card.forms) == 1)
    assert card.forms[0].title == "Did _wire take effect?"
    assert not card.notices
    assert (await card.press(card.forms[0]))["ok"]
    run = await nb.open_run("r1", agent=agent, store=store)
    assert (await run).text == "Settled."


async def test_a_thousand_questions_open_within_a_second_and_do_not_block_the_loop(tmp_path: Path):
    """The first fifty are drawn, more on demand; the longest block of the loop is printed, not asserted."""
    store = nb.SQLiteStore(tmp_path / "many.db")
    agent = banker(store)
    await agent.run("Pay").settled()
    [run_id] = store.run_ids()
    rows = store.rows(run_id)
    for number in range(999):
        store.put(f"r{number}", rows)
    began, longest = time.monotonic(), 0.0
    card = Played(store)
    while len(card.forms) < 50:
        at = time.monotonic()
        await asyncio.sleep(0.005)
        longest = max(longest, time.monotonic() - at)
    took = time.monotonic() - began
    print(f"1,000 questions: {took:.2f} s, longest hold of the loop {longest * 1000:.0f} ms")
    assert card.view.snapshot().head.status_text == "1,000 questions"
    card.says(type="press", notice="more", action="show")
    await until(lambda: len(card.forms) == 100)


async def test_a_question_of_a_flow_has_its_name_once_and_a_short_id() -> None:
    """The form and its record have neither "tidy ▸ tidy" nor 32 digits."""

    @nb.flow
    async def tidy(ctx: nb.ToolContext) -> bool:
        return await ctx.ask("Drop it?", reply=bool)

    store = nb.MemoryStore()
    run = tidy.with_options(store=store).run()
    await run.settled()
    card = Played(store)
    await until(lambda: card.forms)
    (form,) = card.forms
    assert (form.path, form.tool) == ("", "tidy")
    assert run.id[:8] in [fact.value for fact in form.facts]
    await run.respond(run.interrupts[0], True)
    await run
    await until(lambda: card.records)
    assert card.records[0].title.startswith("tidy ")
    assert "▸" not in card.records[0].title
    card.detach()
