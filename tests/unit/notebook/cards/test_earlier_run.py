"""A cell is run again while a tool of its earlier run executes: the new card names, stops and shows that run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.run.run import Run
from nbagent.notebook import host, kernel
from nbagent.notebook.cards import display
from nbagent.notebook.cards.chat_card import ChatCard
from nbagent.notebook.cards.run_card import RunCard
from nbagent.notebook.host import NotebookHost
from nbagent.notebook.wire import NoticeItem
from tests.until import until


@dataclass
class Cell:
    """A cell that can be run again, with a tool that executes until ``let_go`` is set."""

    begun: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    host: NotebookHost = field(default_factory=NotebookHost)
    executions: int = 0

    def agent(self, *steps: Any) -> nb.Agent:
        agent = nb.Agent(nb.ScriptedModel(list(steps)))

        @agent.tool
        def slow() -> str:
            self.begun.set()
            assert self.let_go.wait(20)
            return "slow"

        @agent.tool
        def careful(ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt(nb.Confirm(message="Go?"))
            return "went"

        return agent

    def run(self, agent: nb.Agent, **how: Any) -> tuple[Run, RunCard]:
        """Run the cell again; return the run and its card."""
        self.executions += 1
        run = agent.run("go", attended=True, show=False)
        self.host.started(run, on_rerun=how.get("on_rerun", "cancel"))
        shown = display.Shown(run, earlier=self.host.earlier(run))
        shown.show(str(self.executions))
        live = shown.live
        assert live is not None
        assert isinstance(live.card, RunCard)
        self.shown, self.live = shown, live
        return run, live.card


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A cell in a front end."""
    cell = Cell()
    monkeypatch.setattr(kernel, "cell_id", lambda: "cell")
    monkeypatch.setattr(kernel, "execution_key", lambda: str(cell.executions))
    monkeypatch.setattr(host.capture, "install", lambda: None)
    monkeypatch.setattr(display, "display", lambda *_, **__: None)
    monkeypatch.setattr(kernel.Cell, "update", lambda *_: None)
    return cell


CALL = nb.ScriptedModel.call


def notices(card: RunCard) -> list[NoticeItem]:
    return [item for item in card.view.snapshot().items if isinstance(item, NoticeItem)]


def press(card: RunCard, action: str, notice: str = "earlier0") -> None:
    card._handle({"type": "press", "notice": notice, "action": action})


async def executing_run(cell: Cell) -> Run:
    """An earlier run whose tool executes."""
    first, _ = cell.run(cell.agent([CALL("slow")], "first"))
    await until(cell.begun.is_set)
    return first


async def test_the_new_card_names_the_tool_and_its_stop_button_ends_the_earlier_run(
    cell: Cell,
) -> None:
    """One press stops the earlier run; the notice changes at once, and disappears at that run's end."""
    first = await executing_run(cell)
    second, card = cell.run(cell.agent("second"))
    (notice,) = notices(card)
    assert notice.text == "The previous run of this cell is still executing slow."
    assert [action.label for action in notice.actions] == ["Stop previous run", "Show previous run"]
    press(card, "stop")
    assert notices(card)[0].text == "The previous run of this cell is stopping."
    assert [action.name for action in notices(card)[0].actions] == ["show"]
    cell.let_go.set()
    await until(lambda: notices(card) == [])
    assert (first.status, (await second).text) == ("cancelled", "second")


async def test_show_puts_the_earlier_card_below_and_both_end_together(cell: Cell) -> None:
    """The live card stays until the earlier run has ended, and then both become static."""
    first = await executing_run(cell)
    second, card = cell.run(cell.agent("second"))
    press(card, "show")
    box, below = cell.live.box, cell.live.below
    shown, added = box.children
    assert isinstance(shown, ChatCard)
    assert (shown.chat.runs, added.run) == ((second,), first)
    assert [action.name for action in notices(card)[0].actions] == ["stop"]
    await second
    assert cell.live.is_needed()
    press(card, "stop")
    assert [one.view.snapshot().head.stopping for one in below] == [True]
    cell.let_go.set()
    await until(lambda: not cell.live.is_needed())
    assert [one.run for one in below if isinstance(one, RunCard)] == [first]
    html = cell.live.bundle()["text/html"]
    assert html.index("second") < html.index("Stopped by you.")
    assert html.count("<style>") == 2  # each card has its own rules


@pytest.mark.parametrize(
    ("action", "notice"),
    [("stop", "earlier7"), ("stop", ""), ("show", "0.t"), ("approve", "earlier0")],
)
async def test_a_press_of_a_missing_button_does_nothing(
    cell: Cell, action: str, notice: str
) -> None:
    """A message counts only for a button that this card offers."""
    first = await executing_run(cell)
    _, card = cell.run(cell.agent("second"))
    press(card, action, notice)
    assert (first.status, len(cell.live.box.children)) == ("running", 1)
    press(card, "show")
    press(card, "show")
    assert len(cell.live.box.children) == 2
    cell.let_go.set()
    await first


async def test_a_waiting_earlier_run_is_cancelled_unless_on_rerun_keeps_it(cell: Cell) -> None:
    """With ``on_rerun="keep"`` the new card says that the earlier run waits."""
    first, _ = cell.run(cell.agent([CALL("careful")], "first"))
    await first.settled()
    second, card = cell.run(cell.agent([CALL("careful")], "second"), on_rerun="keep")
    assert notices(card)[0].text == "The previous run of this cell is still waiting for you."
    await second.settled()
    _, last = cell.run(cell.agent("third"))
    await until(lambda: (first.status, second.status) == ("cancelled", "cancelled"))
    assert notices(last) == []


async def test_a_stop_is_shown_on_every_page_before_the_tool_has_ended(cell: Cell) -> None:
    """A tool in a thread may take time to end; the head shows at once that the run is stopping."""
    first, card = cell.run(cell.agent([CALL("slow")], "first"))
    await until(cell.begun.is_set)
    card._handle({"type": "stop"})
    assert card.view.snapshot().head.stopping
    assert first.status == "running"
    cell.let_go.set()
    await until(lambda: first.status == "cancelled")
    assert not card.view.snapshot().head.stopping


async def test_follow_ups_in_a_card_stop_when_its_cell_is_run_again(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the box of an unnamed chat; a named chat is the same thread again, and continues."""
    monkeypatch.setattr(kernel, "attended", lambda: True)
    store = nb.MemoryStore()
    for name in (None, "named"):
        cell.executions += 1
        first = cell.agent([CALL("careful")]).chat(id=name, store=store, show=False)
        cell.host.show_chat(first)
        asked = first.send("go")
        await asked.settled()
        cell.executions += 1
        cell.host.show_chat(cell.agent().chat(id=name, store=store, show=False))
        wanted = "interrupted" if name else "cancelled"
        await until(partial(lambda run, status: run.status == status, asked, wanted))


async def test_a_rerun_keeps_the_runs_that_the_cell_only_opened(cell: Cell) -> None:
    """A person may answer them later, here or elsewhere."""
    agent = cell.agent([CALL("careful")], "done", "second")
    stored = agent.run(
        "go", id="march", attended=True, show=False, store=(store := nb.MemoryStore())
    )
    await stored.settled()
    opened = await nb.open_run("march", agent=agent, store=store, attended=True, show=False)
    await opened.settled()
    cell.executions += 1
    cell.host.started(opened, on_rerun="keep", is_opened=True)
    second, _ = cell.run(cell.agent("second"))
    await second
    assert (opened.status, stored.status) == ("interrupted", "interrupted")
