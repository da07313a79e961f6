"""The live card of a batch: a window of its rows, a form for many questions, and malformed messages."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import nbagent as nb
from nbagent.notebook.cards.batch_card import BatchCard, bundle
from nbagent.notebook.cards.card import Card
from nbagent.notebook.cards.run_card import RunCard
from nbagent.notebook.wire import FormItem
from tests.unit.batch.test_batch import Rows, paying
from tests.until import until

ALL = ["pay", "", "is", "", ""]
"""The rule that the kernel chooses first."""


class Played(BatchCard):
    """A card with a simulated page."""

    def __init__(self, batch: Any) -> None:
        super().__init__(batch)
        self.stood: list[Card | None] = []
        self.on_open = self.stood.append

    def press(self, **message: Any) -> None:
        self._handle_table_message(message)

    def choose(self, *rule: str, version: str = "") -> None:
        self.press(type="rule", rule=[*rule, version])

    def decide(self, asks: dict[str, Any], action: str, reason: str = "", opened: Any = ()) -> None:
        """Press a button of a page that shows these questions, and in which these values are opened."""
        shown = {"preview": asks["preview"], "rule": asks["rule"], "opened": [*opened]}
        self.press(type="decide", **shown, action=action, reason=reason)

    @property
    def shown_keys(self) -> list[str]:
        return [row[0] for row in self.table.window["rows"]]


async def test_c462_a_page_gets_a_window_of_rows_filtered_and_sorted_in_the_kernel():
    """Of 3,000 rows a page gets at most 60, a few kB; it can scroll, search, sort and open a row."""
    failing = Rows(
        lambda text: nb.errors.ModelError("no") if text.endswith("77") else f"did {text}"
    )
    batch = nb.map(
        failing.agent, range(3000), prompt="row {}", id="march", attended=True, show=False
    )
    await batch
    card = Played(batch)
    assert card.table.window["total"] == 3000
    assert (card.shown_keys[0], len(card.shown_keys)) == ("0", 30)
    card.press(type="window", **{"from": 1500, "count": 10_000})
    await until(lambda: card.shown_keys[0] == "1500")
    assert len(card.shown_keys) == 60
    assert card.table.window["rows"][0][3][3] == "did row 1500"
    assert len(json.dumps(card.table.window)) < 8_000
    assert len(json.dumps(card.table.state)) < 6_000
    card.press(type="want", filters={"status": "failed"})
    await until(lambda: card.table.window["total"] == 30)
    assert "ModelError: no" in card.table.window["rows"][0][3][3]
    card.press(type="want", filters={"text": "177", "status": "failed"})
    await until(lambda: card.table.window["total"] == 4)
    card.press(type="sort", column="key")
    card.press(type="sort", column="key")
    await until(lambda: card.shown_keys == ["2177", "1777", "1177", "177"])
    card.press(type="open", key="177")
    await until(lambda: card.view.opened == "177")
    assert isinstance(card.below, RunCard)
    assert card.stood[-1] is card.below
    card.press(type="open", key="177")
    await until(lambda: card.view.opened == "")
    assert card.stood[-1] is None
    failing._reply = lambda text: f"did {text}"
    card.press(type="press", action="retry")
    await until(lambda: batch.counts["completed"] == 3000)
    await until(lambda: card.view.snapshot().head.status == "completed")


async def test_c463_a_form_answers_only_questions_that_its_page_has_shown():
    """A rule counts matching questions; an answer applies only to those that the page has shown."""
    rows = paying()
    batch = nb.map(rows.agent, range(90), prompt="pay {}", id="march", attended=True, show=False)
    await batch
    card = Played(batch)
    await until(lambda: (card.table.state["asks"] or {}).get("fit") == 30)
    asks = card.table.state["asks"]
    assert [name for name, _ in asks["fields"]] == ["amount", "why", "note"]
    card.choose("pay", "amount", "above", "many")
    await until(lambda: card.table.state["asks"]["said"] == "The value is not a number")
    assert card.table.state["asks"]["fit"] == 0
    card.choose("pay", "amount", "below", "30")
    await until(lambda: card.table.state["asks"]["fit"] == 10)
    few = card.table.state["asks"]
    card.decide(few | {"preview": few["preview"] + 100}, "approve")
    await until(lambda: "Check them again" in card.table.state["asks"]["told"])
    card.decide(few, "approve")
    await until(lambda: batch.counts["completed"] == 70)
    assert rows.bodies == dict.fromkeys(range(0, 30, 3), 1)
    card.choose("pay", "why", "contains", "DUPL")
    await until(lambda: card.table.state["asks"]["fit"] == 10)
    asks = card.table.state["asks"]
    card.decide(asks, "reject", "twice")
    await until(lambda: batch.counts["completed"] == 80)
    told = {(one.by, one.reason) for one in nb.decisions(store=batch.store)}
    assert told == {
        ("form, rule: tool='pay', amount below '30'", ""),
        ("form, rule: tool='pay', why contains 'DUPL'", "twice"),
    }
    batch.stop()


async def test_a_decision_that_names_another_rule_than_the_kernel_shows_answers_nothing():
    """The page's controls, the questions that it showed and the kernel's rule must agree, on every road."""
    rows = paying()
    batch = nb.map(rows.agent, range(9), prompt="pay {}", id="march", attended=True, show=False)
    await batch
    card = Played(batch)
    await until(lambda: (card.table.state["asks"] or {}).get("fit") == 3)
    before = card.table.state["asks"]
    assert before["rule"] == ALL
    below = ["pay", "amount", "below", "3", "a1"]
    for action in ("approve", "reject"):
        card.decide(before | {"rule": below}, action)  # typed, and not sent yet
        await until(lambda: "Check them again" in card.table.state["asks"]["told"])
        card.press(type="rule", rule=below)
        card.decide(before | {"rule": below}, action)  # sent, and not shown yet
        card.decide(before, action)  # another page
        await until(lambda: card.table.state["asks"]["fit"] == 1)
        await until(lambda: "Check them again" in card.table.state["asks"]["told"])
        card.press(type="rule", rule=ALL)
        await until(lambda: card.table.state["asks"]["fit"] == 3)
    assert (batch.counts["interrupted"], rows.bodies) == (3, {})
    card.press(type="rule", rule=below)
    await until(lambda: card.table.state["asks"]["rule"] == below)
    card.decide(card.table.state["asks"], "approve")
    await until(lambda: rows.bodies == {0: 1})
    batch.stop()


async def test_a_form_approves_questions_with_editable_input_as_the_inbox_does():
    """The input runs unchanged."""

    def reply(messages: Any) -> Any:
        return nb.ScriptedModel.call("pay", n=1) if messages[-1]["role"] != "tool" else "done"

    agent = nb.Agent(nb.ScriptedModel(reply), name="payer", store=nb.MemoryStore())
    paid: list[int] = []

    @agent.tool(approval=True, editable=["n"])
    def pay(n: int) -> str:
        paid.append(n)
        return "paid"

    batch = nb.map(agent, range(4), prompt="row {}", id="march", attended=True, show=False)
    await batch
    card = Played(batch)
    await until(lambda: (card.table.state["asks"] or {}).get("fit") == 4)
    assert card.table.state["asks"]["approvable"] is True
    card.decide(card.table.state["asks"], "approve")
    await until(lambda: batch.counts["completed"] == 4)
    assert paid == [1] * 4


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        {"type": "window", "from": -1, "count": 5},
        {"type": "window", "from": "0", "count": 5},
        {"type": "sort", "column": "__class__"},
        {"type": "open", "key": "nobody"},
        {"type": "open", "key": "x" * 10_000},
        {"type": "want", "filters": {"text": "x" * 100_000, "status": "<b>", "agent": 7}},
        {"type": "want", "filters": "text"},
        {"type": "press", "action": "_start"},
        {"type": "rule", "rule": ["pay", "amount", "__gt__", "1", ""]},
        {"type": "rule", "rule": ["pay", "amount", "below", "nan", ""]},
        {"type": "rule", "rule": ["pay", "amount", "below", 1, ""]},
        {"type": "rule", "rule": ["pay"]},
        {
            "type": "decide",
            "preview": 1,
            "opened": [],
            "rule": ALL,
            "action": "restart",
            "reason": "",
        },
        {
            "type": "decide",
            "preview": 1,
            "opened": [],
            "rule": ["pay"],
            "action": "approve",
            "reason": "",
        },
        {"type": "decide", "preview": 1, "opened": [], "action": "approve", "reason": ""},
        {
            "type": "decide",
            "preview": 1,
            "opened": "x",
            "rule": ALL,
            "action": "approve",
            "reason": "",
        },
        {"type": "look", "preview": 1, "value": 7},
        {"type": "look", "preview": 99, "value": "x"},
        {
            "type": "decide",
            "preview": 10**30,
            "opened": [],
            "rule": ALL,
            "action": "approve",
            "reason": "",
        },
    ],
)
async def test_c463_a_malformed_message_of_a_page_changes_nothing(message):
    """Nothing is answered, and the card continues."""
    rows = paying()
    batch = nb.map(rows.agent, range(9), prompt="pay {}", id="march", attended=True, show=False)
    await batch
    card = Played(batch)
    await until(lambda: card.table.state["asks"] is not None)
    card._handle_table_message(message)
    card.press(type="sort", column="status")
    await until(
        lambda: card.table.window["by"] == "status" or bool(card.view.query.filters["text"])
    )
    assert (batch.counts["interrupted"], rows.bodies) == (3, {})
    assert card.view.opened == ""
    assert len(card.view.query.filters["text"]) <= 500
    batch.stop()


async def test_a_press_that_is_refused_is_reported_in_the_card(monkeypatch):
    """A button of a batch that another process works on reports that, until a later press succeeds."""
    batch = nb.map(Rows().agent, ["a"], prompt="{}", id="march", attended=True, show=False)
    await batch
    card = Played(batch)

    def refuse(_batch: Any) -> None:
        raise nb.errors.UsageError("Another process is working on the batch")

    monkeypatch.setattr(type(batch), "pause", refuse)
    card.press(type="press", action="pause")
    await until(
        lambda: (
            [item.text for item in card.shown().items]
            == ["Another process is working on the batch"]
        )
    )
    monkeypatch.undo()
    card.press(type="press", action="pause")
    await until(lambda: not card.shown().items)


async def test_c462_without_a_kernel_the_card_shows_counts_first_rows_and_failures():
    """As HTML without scripts, and as text."""
    rows = Rows(
        lambda text: (
            nb.errors.ModelError("<script>no</script>") if text.endswith("7") else "<b>fine</b>"
        )
    )
    batch = await nb.map(rows.agent, range(400), prompt="row {}", id="march")
    kept = bundle(batch)
    assert kept["text/plain"] == "<Batch march: 360 of 400 done, 40 failed>"
    html = kept["text/html"]
    for text in ("360 done", "40 failed (the first 20)", "and 390 more rows", "&lt;b&gt;fine"):
        assert text in html
    assert "<script" not in html
    assert html.count("<tr>") == 2 + 10 + 20


@pytest.mark.parametrize(
    ("question", "given", "answer"),
    [
        (nb.Choose("Which?", ["red", "green"]), "1", "green"),
        (nb.Ask("Which one?"), "blue", "blue"),
    ],
)
async def test_c463_many_questions_are_answered_with_one_choice_or_a_text(question, given, answer):
    """Only if all matching questions take the same answers; an invalid choice answers nothing."""

    def reply(messages: Any) -> Any:
        return nb.ScriptedModel.call("paint", n=1) if messages[-1]["role"] != "tool" else "done"

    agent = nb.Agent(nb.ScriptedModel(reply), name="painter", store=nb.MemoryStore())
    painted: list[str] = []

    @agent.tool
    async def paint(n: int, ctx: nb.ToolContext) -> str:
        painted.append(await ctx.ask(question))
        return "painted"

    batch = nb.map(agent, range(4), prompt="row {}", id="march", attended=True, show=False)
    await batch
    card = Played(batch)
    await until(lambda: (card.table.state["asks"] or {}).get("fit") == 4)
    asks = card.table.state["asks"]
    assert asks["approvable"] is False
    assert (asks["choices"], asks["writable"]) == (
        ([["0", "red"], ["1", "green"]], False) if given == "1" else ([], True)
    )
    card.decide(asks, "answer", "7" if given == "1" else "")
    await until(lambda: "Check them again" in card.table.state["asks"]["told"])
    card.decide(asks, "answer", given)
    await until(lambda: batch.counts["completed"] == 4)
    assert painted == [answer] * 4


PAID = [
    *(
        {"to": f"ACC-{n}", "amount": 5 + n % 30, "why": ("refund", "duplicate")[n % 2]}
        for n in range(20)
    ),
    {"to": "ACC-3", "amount": 987_654_321, "why": "refund"},
    {
        "to": "ACC-4",
        "amount": 9,
        "why": "refund" + " please" * 20 + "\nBCC: all@evil.example" + " thanks" * 20,
    },
    {"to": "ACC-\u202e5", "amount": 9, "why": "refund"},
    {"to": "ACC-6", "amount": "9", "why": "refund"},
]


async def test_an_answer_to_many_covers_only_questions_whose_every_value_the_page_had():
    """A cut, marked or far value is listed by itself, and its question stays open until the kernel has sent it."""

    def reply(messages: Any) -> Any:
        n = int(messages[0]["content"][0]["text"])
        return nb.ScriptedModel.call("pay", **PAID[n]) if messages[-1]["role"] != "tool" else "done"

    agent = nb.Agent(nb.ScriptedModel(reply), name="payer", store=nb.MemoryStore())
    paid: list[Any] = []

    @agent.tool(approval=True)
    def pay(to: str, amount: int | str, why: str) -> str:
        paid.append(amount)
        return "paid"

    batch = nb.map(agent, range(24), prompt="{}", id="march", attended=True, show=False)
    await batch
    card = Played(batch)
    await until(lambda: (card.table.state["asks"] or {}).get("fit") == 24)
    covers, asks = card.table.covers, card.table.state["asks"]
    assert (covers["n"], [(one[1], one[3], one[4]) for one in covers["look"]]) == (
        20,
        [
            ("to: hidden characters", 1, None),
            ("amount: far from the others", 1, None),
            ("amount: another type than the others", 1, None),
            ("why: much longer than the others", 1, None),
        ],
    )
    to, amount, why = covers["inputs"]
    assert to["text"] == "20 different values of 5 to 6 characters"
    assert (amount["text"], sum(amount["bars"])) == ("5 to 24, sum 290", 20)
    assert why["values"] == [["refund", 10], ["duplicate", 10]]
    hidden, far, _, long = (one[0] for one in covers["look"])
    card.press(type="look", preview=covers["preview"], value=far)
    await until(lambda: card.table.covers["n"] == 21)
    [opened] = [one[4] for one in card.table.covers["look"] if one[4]]
    assert (opened["label"], opened["value"]) == ("amount", "987654321")
    assert card.table.covers["inputs"][1]["text"] == "5 to 987,654,321, sum 987,654,611"
    card.decide(asks, "approve", opened=[far, hidden, long])  # two were never sent
    await until(lambda: batch.counts["completed"] == 21)
    assert (sum(paid), batch.counts["interrupted"]) == (290 + 987_654_321, 3)
    batch.stop()


async def test_a_question_that_was_asked_anew_is_not_answered_by_an_answer_to_many():
    """The input that was shown is the input that runs."""
    rows = paying()
    batch = nb.map(rows.agent, range(9), prompt="pay {}", id="march", attended=True, show=False)
    await batch
    card = Played(batch)
    await until(lambda: (card.table.state["asks"] or {}).get("fit") == 3)
    preview = card.view.previews[card.table.covers["preview"]]
    one, *_ = preview._matching
    preview._matching[0] = replace(one, interrupt=replace(one.interrupt, digest="another"))
    card.decide(card.table.state["asks"], "approve")
    await until(lambda: batch.counts["completed"] == 8)
    await until(lambda: "has changed since it was shown" in card.table.state["asks"]["told"])
    assert batch.counts["interrupted"] == 1
    batch.stop()


async def test_text_typed_in_a_closed_row_is_there_when_it_is_opened_again():
    """As in the list of runs: a row that was closed by mistake loses no work."""

    def reply(messages: Any) -> Any:
        return nb.ScriptedModel.call("pay", to="Ada") if messages[-1]["role"] != "tool" else "done"

    agent = nb.Agent(nb.ScriptedModel(reply), name="payer", store=nb.MemoryStore())

    @agent.tool(approval=True, editable=True)
    def pay(to: str) -> str:
        return "paid"

    batch = nb.map(agent, range(2), prompt="{}", id="march", attended=True, show=False)
    await batch
    card = Played(batch)

    async def open_row(key: str) -> Any:
        card.press(type="open", key=key)
        await until(lambda: card.view.opened == key)
        assert isinstance(card.below, RunCard)
        [form] = [one for one in card.below._view().items if isinstance(one, FormItem)]
        return form

    form = await open_row("0")
    drafts = {"fields": {"to": {"text": "Bob"}}}
    below = card.below
    assert isinstance(below, RunCard)
    below._on_message(
        below, {"type": "drafts", "interrupt": form.interrupt, "drafts": drafts}, None
    )
    await until(lambda: bool(below.typed()))
    assert (await open_row("1")).drafts is None
    assert (await open_row("0")).drafts == drafts
    batch.stop()
