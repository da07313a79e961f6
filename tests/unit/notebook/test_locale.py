"""One mapping holds every sentence; another language replaces all or some of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.forms.form import Form
from nbagent.notebook.cards.form_card import FormCard, question_of
from nbagent.notebook.locale import ENGLISH
from nbagent.notebook.view.questions import Question


class Trip(BaseModel):
    city: str


@pytest.fixture(autouse=True)
def english_again() -> Iterator[None]:
    """Restore English after every test."""
    yield
    nb.set_locale({})


def marked() -> dict[str, str]:
    """A language in which every sentence is marked."""
    return {key: f"«{text}»" for key, text in ENGLISH.items()}


def card_texts() -> dict[str, str]:
    waiting = PendingInterrupt(
        id="i", tool_name="send", call_id="c", kind="approval", input={"to": "a"}, digest="d"
    )
    question = Question.of(waiting)
    told = {action.name: action.label for action in question.actions}
    errors = Form(Trip).submit(None).errors
    return told | {"title": question.title, "error": errors[0][2]}


def test_every_sentence_of_both_layers_is_replaced() -> None:
    """Buttons, titles and errors, also those made when the modules loaded."""
    nb.set_locale(marked())
    assert all(text.startswith("«") for text in card_texts().values()), card_texts()


def test_a_missing_sentence_stays_english() -> None:
    """A later mapping replaces the earlier one."""
    nb.set_locale({"approve": "Genehmigen"})
    assert card_texts()["approve"] == "Genehmigen"
    assert card_texts()["error"] == "Please answer."
    nb.set_locale({"form.answer": "Bitte antworten."})
    assert card_texts()["approve"] == "Approve"
    assert card_texts()["error"] == "Bitte antworten."


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ({"aprove": "x"}, "unknown key 'aprove'"),
        ({"tokens": "{m} Token"}, "'tokens' uses m. Available: n"),
        ({"send": "{n}"}, "'send' uses n. Available: nothing"),
        ({"send": "{"}, "invalid braces"),
        ({"send": None}, "must be a string"),
    ],
)
def test_an_invalid_mapping_changes_nothing(mapping: Any, says: str) -> None:
    """The error names the key and what is wrong with it."""
    before = card_texts()
    with pytest.raises(nb.NbagentError, match=re.escape(says)):
        nb.set_locale({"approve": "Genehmigen", **mapping})
    assert card_texts() == before


async def test_an_open_card_continues_in_the_new_language() -> None:
    """The card gets the new sentences, and its form is answered as before."""
    sent: list[dict[str, Any]] = []

    class Played(FormCard):
        def send(self, content: Any, buffers: Any = None) -> None:
            sent.append(content)

    card = Played(question_of(Form(Trip), title="Where?"))
    card.loop.call_soon(nb.set_locale, marked())
    press = {"type": "answer", "interrupt": "form", "submission": "s", "action": "submit"}
    card.loop.call_soon(card._handle, press)
    card.loop.call_soon(card._handle, press | {"drafts": {"fields": {"city": {"text": "Oslo"}}}})
    assert await card.future == Trip(city="Oslo")
    snapshots = [m for m in sent if m["type"] == "snapshot"]
    assert snapshots[-1]["texts"]["optional"] == "«optional»"
    refused = next(m for m in sent if m["type"] == "receipt")
    assert refused["errors"][0]["message"] == "«Please answer.»"
