"""The live list of a store's runs: read in parts, filtered and sorted as a whole, with one run open below."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import ipywidgets
import pytest
from pydantic import SecretStr

import nbagent as nb
from nbagent.core.stored.listing import Listing
from nbagent.notebook.cards.card import Card
from nbagent.notebook.cards.run_card import RunCard
from nbagent.notebook.cards.runs_card import RunsCard, StoredCard
from nbagent.notebook.cards.table_card import REMEMBERED
from nbagent.notebook.wire import FormItem
from tests.until import until

call = nb.ScriptedModel.call


class Played(RunsCard):
    """A list that records each card below."""

    def __init__(self, store: Any) -> None:
        super().__init__(Listing(store), "runs.db")
        self.stood: list[Card | None] = []
        self.on_open = self.stood.append

    def press(self, **message: Any) -> None:
        self._handle_table_message(message)

    @property
    def ids(self) -> list[str]:
        return [row[0] for row in self.table.window["rows"]]


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


async def test_c375_a_list_of_thousands_is_read_in_parts_without_blocking_the_loop(store):
    """The first rows appear at once; filters and sorting apply to all rows, and new rows are added."""
    says = nb.Agent(nb.ScriptedModel(lambda _messages: "hello"), name="talker", store=store)
    await says.run("Say <b>hello</b>.", id="first")
    rows = store.rows("first")
    for number in range(1200):
        store.put(f"run-{number:04}", rows)
    card = Played(store)
    await until(lambda: bool(card.ids))
    assert len(card.ids) == 30
    await until(lambda: card.table.state["found"] == "1,201 runs")
    assert card.table.window["total"] == 1201
    card.press(type="window", **{"from": 1150, "count": 10_000})
    await until(lambda: len(card.ids) == 51)
    card.press(type="window", **{"from": 1000, "count": 10_000})
    await until(lambda: len(card.ids) == 60)
    assert len(json.dumps(card.table.window)) < 10_000
    card.press(type="sort", column="id")
    await until(lambda: card.ids[0] == "first")
    card.press(type="sort", column="id")
    await until(lambda: card.ids[0] == "run-1199")
    filters = {"text": "RUN-00 talker", "agent": "", "status": "completed"}
    card.press(type="want", filters=filters)
    await until(lambda: card.table.state["found"] == "100 of 1,201 runs")
    assert (card.ids[0], card.table.window["total"]) == ("run-0099", 100)
    card.press(type="want", filters={"text": "again"})
    await until(lambda: card.ids == [])
    await says.run("Once again.", id="again")
    await until(lambda: card.ids == ["again"])
    assert card.view.snapshot().head.status_text == "1,202 runs"


async def test_c375_a_run_is_opened_below_with_its_forms_once_its_agent_is_known(store):
    """Without its agent a run is read-only; unknown runs and messages change nothing."""
    name = f"banker-{time.time_ns()}"
    await banker(store, name, call("pay", to="Ada")).run("Pay Ada", id="may").settled()
    gc.collect()  # collects the agent and its run
    card = Played(store)
    await until(lambda: card.ids == ["may"])
    card.press(type="open", key="may")
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
    await until(lambda: card.table.window["rows"][0][2] == "completed")
    card.press(type="open", key="may")
    await until(lambda: card.view.opened == "")
    assert card.stood[-1] is None
    card.press(type="open", key="none")
    card.press(type="nothing")
    await asyncio.sleep(0)
    assert card.below is None


Slider = nb.FormHint(widget=lambda: ipywidgets.IntSlider(max=50))


def asker(store: Any, *, runs: int) -> nb.Agent:
    """An agent whose runs wait for three inputs: a text, a secret and a slider's number."""

    async def pay(to: str, key: SecretStr, amount: Annotated[int, Slider]) -> str:
        """Pay."""
        return f"paid {amount} to {to} with {len(key.get_secret_value())} characters"

    tools = [nb.tool(pay, approval=True, editable=True)]
    asks = call("pay", to="Ada", key="k", amount=1)
    script = [*[asks] * runs, "Done."]
    return nb.Agent(
        nb.ScriptedModel(script), name=f"asker-{time.time_ns()}", store=store, tools=tools
    )


def form_of(card: Card | None) -> FormItem:
    """The form of a card, as a newly opened page gets it."""
    assert isinstance(card, RunCard)
    [form] = [
        item for item in card.get_state()["snapshot"]["view"]["items"] if item["type"] == "form"
    ]
    return FormItem.model_validate(form)


def typed(card: Card | None, to: str) -> None:
    """Type into the open form as a page does."""
    assert card is not None
    fields = {"to": {"text": to}, "key": {"text": "hunter2"}}
    message = {"type": "drafts", "interrupt": form_of(card).interrupt, "drafts": {"fields": fields}}
    card._on_message(card, message, None)


async def test_text_typed_in_a_closed_run_is_there_when_it_is_opened_again(store):
    """Opening another run closes the first too. Secrets stay in the page; answered questions are not filled."""
    made = asker(store, runs=2)
    runs = [made.run("Pay", id=id_, show=False) for id_ in ("may", "june")]
    for run in runs:
        await run.settled()
    card = Played(store)
    await until(lambda: len(card.ids) == 2)
    opened = []
    for id_ in ("may", "june", "may", "may", "may"):
        card.press(type="open", key=id_)
        shown = len(opened) + 1
        await until(lambda shown=shown: len(card.stood) == shown)  # type: ignore[misc]
        opened.append(card.below)
        if shown < 3:
            assert form_of(card.below).drafts is None
            await until(lambda: bool(card.below.rows))
            typed(card.below, to=f"Bob of {id_}")
            card.below.rows[0].children[1].value = 20 + shown
    may, _, again, closed, reopened = opened
    assert closed is None
    for each in (again, reopened):
        assert isinstance(each, RunCard)
        assert each is not may
        assert form_of(each).drafts == {"fields": {"to": {"text": "Bob of may"}, "key": None}}
    await until(lambda: bool(card.below.rows))
    slider = card.below.rows[0].children[1]
    assert slider.value == 21
    runs[0].approve(runs[0].interrupts[0])
    await runs[0]
    card.press(type="open", key="june")
    await until(lambda: len(card.stood) == 6)
    june = form_of(card.below).drafts
    assert june == {"fields": {"to": {"text": "Bob of june"}, "key": None}}
    card.press(type="open", key="may")
    await until(lambda: len(card.stood) == 7)
    assert isinstance(card.below, RunCard)
    assert card.below.typed() == {}
    assert "hunter2" not in repr(card._typed)
    await runs[1].cancel()


async def test_typed_text_is_kept_only_for_the_newest_closed_runs(store):
    """A list that is open for days does not grow with every unfinished form."""
    ids = [f"run-{number:02}" for number in range(REMEMBERED + 3)]
    made = asker(store, runs=len(ids))
    for id_ in ids:
        await made.run("Pay", id=id_, show=False).settled()
    card = Played(store)
    await until(lambda: len(card.ids) == len(ids))
    for number, id_ in enumerate(ids, start=1):
        card.press(type="open", key=id_)
        await until(lambda number=number: len(card.stood) == number)  # type: ignore[misc]
        typed(card.below, to="Bob")
    card.press(type="open", key=ids[-1])
    await until(lambda: card.below is None)
    assert list(card._typed) == ids[-REMEMBERED:]


async def test_typed_text_is_not_put_into_other_fields(store):
    """If the tool was redefined meanwhile, its form starts without drafts."""
    run = asker(store, runs=1).run("Pay", show=False)
    await run.settled()
    first = RunCard(run)
    typed(first, to="Bob")
    await until(lambda: bool(first.typed()))
    [(interrupt, before)] = first.typed().items()
    assert form_of(RunCard(run, {interrupt: before})).drafts is not None
    other = before.form.model_copy(update={"spec": {**(before.form.spec or {}), "now": "another"}})
    assert form_of(RunCard(run, {interrupt: replace(before, form=other)})).drafts is None
    await run.cancel()
