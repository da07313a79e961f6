"""A form outside a run: the messages of its card, and the effects of a press."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr

import nbagent as nb
from nbagent.core.base.incoming_json import MAX_PARTS
from nbagent.core.tools.call_output import CallOutput, current_call
from nbagent.forms.form import Form
from nbagent.notebook.cards import card as card_module
from nbagent.notebook.cards.card import MAX_WAITING
from nbagent.notebook.cards.form_card import FormCard, question_of
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import MAX_TEXT, Drafts, FormItem, RecordItem
from tests.until import until


class Login(BaseModel):
    """Who and how."""

    user: str
    tries: int = Field(3, ge=1)
    password: SecretStr


DRAFTS = {"fields": {"user": {"text": "ada"}, "password": {"text": "hushhush"}}}


class Played(FormCard):
    """A card that records its messages to the page."""

    def __init__(self, target: Any = Login, **options: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        super().__init__(question_of(Form(target, **options), title="Log in", submit_label="Go"))

    def send(self, content: Any, buffers: Any = None) -> None:
        self.sent.append(content)

    def press(self, action: str = "submit", **more: Any) -> dict[str, Any]:
        self._handle(
            {"type": "answer", "interrupt": "form", "submission": "s", "action": action, **more}
        )
        return next(message for message in reversed(self.sent) if message["type"] == "receipt")


async def test_an_answer_is_typed_and_counts_once() -> None:
    """A second press is refused; the value is that of the first."""
    card = Played()
    first = card.press(drafts=DRAFTS)
    assert first["ok"], first
    second = card.press(drafts={"fields": {"user": {"text": "eve"}, "password": {"text": "x"}}})
    assert [e["message"] for e in second["errors"]] == ["This form is already answered."]
    login = await card.future
    assert (login.user, login.tries) == ("ada", 3)
    assert login.password.get_secret_value() == "hushhush"
    assert isinstance(card._item, RecordItem)


@pytest.mark.parametrize("state", ["open", "typed", "refused", "answered", "static"])
async def test_a_secret_is_in_nothing_that_is_stored(state: str) -> None:
    """A secret is in no trait, message or static page, in any state of the form."""
    card = Played(value={"user": "ada", "password": "hushhush"})
    if state == "typed":
        card._handle(
            {"type": "drafts", "interrupt": "form", "drafts": {"fields": {"user": {"text": "b"}}}}
        )
    if state == "refused":
        wrong = {"fields": {**DRAFTS["fields"], "tries": {"text": "0"}}}
        assert not card.press(drafts=wrong)["ok"]
    if state in ("answered", "static"):
        assert card.press(drafts=DRAFTS)["ok"]
    kept = [card.get_state(), card.sent, card.bundle()]
    assert "ada" in json.dumps(kept, default=str)
    assert "hushhush" not in json.dumps(kept, default=str)


async def test_an_answer_that_does_not_fit_stays_open_with_errors_at_its_fields() -> None:
    """Each error names its field; invalid presses are refused too."""
    card = Played()
    wrong = card.press(drafts={"fields": {"tries": {"text": "0"}, "password": {"text": "p"}}})
    ids = {field["key"]: field["id"] for field in Form(Login).spec()["root"]["fields"]}
    assert {e["field"] for e in wrong["errors"]} == {ids["user"], ids["tries"]}
    for action, more in [("approve", {}), ("submit", {"reason": {"no": "text"}})]:
        assert not card.press(action, drafts=DRAFTS, **more)["ok"]
    assert not card.future.done()
    assert isinstance(card._item, FormItem)


async def test_typed_text_is_in_the_next_snapshot() -> None:
    """A reloaded page shows the text again."""
    card = Played()
    drafts = {"fields": {"user": {"text": "half"}}}
    card._handle({"type": "drafts", "interrupt": "form", "drafts": drafts})
    card._handle({"type": "drafts", "interrupt": "another", "drafts": None})
    card._handle({"type": "hello"})
    assert card.sent[-1]["view"]["items"][0]["drafts"] == drafts
    assert card.get_state()["snapshot"]["view"]["items"][0]["drafts"] == drafts


@pytest.mark.parametrize("way", ["button", "stop"])
async def test_cancelling_raises_where_the_form_is_awaited(way: str) -> None:
    """The error is ``Rejected``."""
    card = Played()
    if way == "button":
        assert card.press("reject")["ok"]
    else:
        card._handle({"type": "stop"})
    with pytest.raises(nb.Rejected, match="'Log in'") as raised:
        await card.future
    assert isinstance(raised.value, nb.Rejected)
    assert "cancelled" in card.bundle()["text/plain"]


async def test_a_form_that_is_no_longer_awaited_accepts_no_answer() -> None:
    """After the cell was stopped, the record says so."""
    card = Played()
    card.withdraw()
    assert not card.press(drafts=DRAFTS)["ok"]
    assert "not answered" in card.bundle()["text/html"]
    assert not card.future.done()


def test_the_static_page_is_the_same_each_time() -> None:
    """Nbval compares notebooks that contain it."""

    async def page() -> dict[str, str]:
        card = Played()
        card.press(drafts=DRAFTS)
        await card.future
        return card.bundle()

    assert asyncio.run(page()) == asyncio.run(page())


async def test_without_a_front_end_a_form_raises_at_once() -> None:
    """The error names the schema and the argument to pass."""
    for target, name in [(Login, "Login"), ({"title": "Poll"}, "Poll"), ({}, "a JSON Schema")]:
        with pytest.raises(nb.HumanInputRequired, match=rf"nb\.form\(.*{name}.*unattended="):
            await nb.form(target)


def test_a_form_that_is_not_awaited_says_what_to_write(recwarn: pytest.WarningsRecorder) -> None:
    """The repr, shown for a cell's last line, says so, and Python does not warn."""
    assert "await nb.form" in repr(nb.form(Login))
    gc.collect()
    assert not recwarn.list


def test_a_dict_of_types_is_not_a_schema() -> None:
    """As a JSON Schema it would be a form without fields."""
    with pytest.raises(TypeError, match=r"pydantic model.*fields a, b"):
        nb.form({"a": int, "b": str})


async def test_an_unattended_answer_is_validated_like_that_of_a_person() -> None:
    """An instance is returned as it is, a document is validated, and an error names its place."""
    given = Login(user="ada", password=SecretStr("hushhush"))
    assert await nb.form(Login, unattended=given) is given
    typed = await nb.form(Login, unattended={"user": "ada", "password": "pw"})
    assert typed.password.get_secret_value() == "pw"
    assert await nb.form({"type": "integer"}, unattended=4) == 4
    assert await nb.form(bool, unattended=False) is False
    with pytest.raises(nb.errors.InvalidAnswer, match="tries") as raised:
        await nb.form(Login, unattended={"user": "a", "tries": 0, "password": "p"})
    assert raised.value.errors[0]["loc"] == ("tries",)


async def test_inside_a_tool_the_form_refers_to_ctx_ask() -> None:
    """The form would be in the tool's row, where no widget can be answered."""
    token = current_call.set(CallOutput("c", lambda _: None))
    try:
        with pytest.raises(nb.NbagentError, match=r"ctx\.ask"):
            await nb.form(bool, unattended=True)
    finally:
        current_call.reset(token)


async def test_a_secret_sent_as_a_draft_is_in_no_snapshot() -> None:
    """Our page sends no secret, but an old or hostile page may, and the widget's state is saved."""
    card = Played()
    card._keep_drafts(Drafts(interrupt="form", drafts=DRAFTS))
    kept = card.get_state()["snapshot"]["view"]["items"][0]["drafts"]
    assert kept == {"fields": {"user": {"text": "ada"}, "password": None}}
    card.close()


class Counting(list):
    """A list that counts how many of its items were visited."""

    seen = 0

    def __iter__(self):
        for one in super().__iter__():
            self.seen += 1
            yield one


MOST = MAX_TEXT


@pytest.mark.parametrize(
    ("part", "made"),
    [
        ("one text", lambda: {"text": "x" * (MOST + 1)}),
        ("many texts", lambda: {"rows": Counting(["x" * 1000] * (MOST // 1000 + 1))}),
        ("keys", lambda: {"x" * 1000 + str(n): n for n in range(MOST // 1000)}),
        ("tiny parts", lambda: Counting([[]] * 1_000_000)),
        ("numbers", lambda: Counting([1] * 1_000_000)),
    ],
)
async def test_an_invalid_message_is_refused_before_it_costs_time(
    part: str, made: Callable[[], Any]
) -> None:
    """The receipt has the reason; counting stops at the limit, and nothing is stored."""
    card, drafts = Played(), made()
    for message in (
        {"type": "drafts", "interrupt": "form", "drafts": drafts},
        {
            "type": "answer",
            "interrupt": "form",
            "submission": "s",
            "action": "submit",
            "drafts": drafts,
        },
    ):
        card._on_message(card, message, None)
    await until(lambda: bool(card.sent))
    [receipt] = card.sent
    assert (receipt["submission"], receipt["ok"]) == ("s", False), part
    [error] = receipt["errors"]
    assert (error["field"], error["message"]) == (None, TEXTS["message_too_large"])
    assert card._item.drafts is None  # type: ignore[union-attr]
    if isinstance(drafts, Counting):
        assert drafts.seen <= 2 * (MAX_PARTS + 1)
    assert card.press(drafts=DRAFTS)["ok"]


async def test_a_flood_of_messages_does_not_block_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other work runs between slices; messages beyond a limit are refused, and later ones work."""
    monkeypatch.setattr(card_module, "SLICE", 0.0)
    card, order = Played(), list[str]()
    usual = card._handle
    card._handle = lambda content: (order.append("message"), usual(content))  # type: ignore[method-assign]
    drafts = {"type": "drafts", "interrupt": "form", "drafts": {"fields": {"user": {"text": "b"}}}}
    for _ in range(MAX_WAITING):
        card._on_message(card, drafts, None)
    answer = {"type": "answer", "interrupt": "form", "submission": "s", "action": "submit"}
    card._on_message(card, answer, None)

    async def work() -> None:
        while len(order) < 2 * MAX_WAITING:
            order.append("work")
            await asyncio.sleep(0)

    await work()
    assert order[: 2 * MAX_WAITING].count("message") == MAX_WAITING
    longest = max(len(run) for run in "".join(one[0] for one in order).split("w"))
    assert longest <= 2, "other work waits for no more than a slice"
    [refused] = [sent for sent in card.sent if sent["type"] == "receipt"]
    assert refused["errors"][0]["message"] == TEXTS["too_many_messages"]
    broken = {"type": "drafts", "interrupt": "form", "drafts": {"fields": 5}}
    for message in (broken, {"type": "hello"}):
        card._on_message(card, message, None)
    await until(lambda: card.hello_count == 1)


async def test_a_message_that_fails_does_not_block_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Later messages, in the same slice or after it, are handled."""
    card = Played()
    failed: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, told: failed.append(told))
    usual = card._keep_drafts

    def fail(message: Any) -> None:
        monkeypatch.setattr(card, "_keep_drafts", usual)
        raise RuntimeError("broken")

    monkeypatch.setattr(card, "_keep_drafts", fail)
    for message in ({"type": "drafts", "interrupt": "form", "drafts": None}, {"type": "hello"}):
        card._on_message(card, message, None)
    await until(lambda: card.hello_count == 1)
    assert len(failed) == 1
    card._on_message(card, {"type": "hello"}, None)
    await until(lambda: card.hello_count == 2)
