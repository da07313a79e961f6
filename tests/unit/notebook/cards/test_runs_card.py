"""The live list of a store's runs: read in parts, chosen among all, and one of them opened below."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.stored.listing import Listing
from nbagent.notebook.cards.card import Card
from nbagent.notebook.cards.run_card import RunCard
from nbagent.notebook.cards.runs_card import RunsCard, StoredCard
from nbagent.notebook.wire import FormItem
from tests.until import until

call = nb.ScriptedModel.call


class Played(RunsCard):
    """A list whose card below is kept as it changes."""

    def __init__(self, store: Any) -> None:
        super().__init__(Listing(store), "runs.db")
        self.stood: list[Card | None] = []
        self.opens = self.stood.append

    def press(self, **message: Any) -> None:
        self._heard(None, message, None)

    @property
    def ids(self) -> list[str]:
        return [row[0] for row in self.table.table["rows"]]


@pytest.fixture
def store(tmp_path: Path) -> nb.SQLiteStore:
    return nb.SQLiteStore(tmp_path / "runs.db")


def banker(store: Any, name: str, *script: Any) -> nb.Agent:
    """An agent that asks before it pays."""

    async def pay(to: str) -> str:
        """Pay."""
        return f"paid {to}"

    tools = [nb.tool(pay, approval=True, editable=True)]
    return nb.Agent(nb.ScriptedModel(script), name=name, store=store, tools=tools)


async def test_c375_a_list_of_thousands_is_read_in_parts_while_the_loop_goes_on(store):
    """The first rows are there at once; choosing and sorting act on all, and what is new appears by itself."""
    says = nb.Agent(nb.ScriptedModel(lambda _messages: "hello"), name="talker", store=store)
    await says.run("Say <b>hello</b>.", id="first")
    rows = store.rows("first")
    for number in range(1200):
        store.put(f"run-{number:04}", rows)
    card = Played(store)
    await until(lambda: bool(card.ids))
    assert len(card.ids) == 50
    await until(lambda: card.table.table["said"] == "1,201 runs")
    assert card.table.table["more"] == "Show 50 more"
    card.press(type="more")
    await until(lambda: len(card.ids) == 100)
    card.press(type="sort", column="id")
    await until(lambda: card.ids[0] == "first")
    card.press(type="sort", column="id")
    await until(lambda: card.ids[0] == "run-1199")
    card.table.chosen = {"text": "RUN-00 talker", "agent": "", "status": "completed"}
    await until(lambda: card.table.table["said"] == "100 of 1,201 runs")
    assert (card.ids[0], len(card.ids)) == ("run-0099", 50)
    card.table.chosen = {"text": "again", "agent": "", "status": ""}
    await until(lambda: card.ids == [])
    await says.run("Once again.", id="again")
    await until(lambda: card.ids == ["again"])
    assert card.view.snapshot().head.status_text == "1,202 runs"


async def test_c375_a_run_is_opened_below_with_its_forms_once_its_agent_is_known(store):
    """Without one it is to read, and follows its store; what executes nothing new stays as it was."""
    name = f"banker-{time.time_ns()}"
    await banker(store, name, call("pay", to="Ada")).run("Pay Ada", id="may").settled()
    gc.collect()  # the agent and its run
    card = Played(store)
    await until(lambda: card.ids == ["may"])
    card.press(type="open", run="may")
    await until(lambda: card.view.opened == "may")
    below = card.below
    assert isinstance(below, StoredCard)
    forms = [item for item in below._view().items if isinstance(item, FormItem)]
    assert [(form.actions, form.spec) for form in forms] == [([], None)]
    assert [fact.value for fact in forms[0].facts] == ["Ada"]
    again = banker(store, name, "Settled.")
    await until(lambda: isinstance(card.below, RunCard))
    assert again.name == name
    opened = card.below
    assert isinstance(opened, RunCard)
    assert opened.run.interrupts[0].tool_name == "pay"
    opened.run.approve(opened.run.interrupts[0])
    await opened.run
    await until(lambda: card.table.table["rows"][0][2] == "completed")
    card.press(type="open", run="may")
    await until(lambda: card.view.opened == "")
    assert card.stood[-1] is None
    card.press(type="open", run="none")
    card.press(type="nothing")
    await asyncio.sleep(0)
    assert card.below is None
