"""Messages from a chat's box: checked in the kernel, bounded, and in no trait."""

from __future__ import annotations

import base64
import json
import sqlite3
from typing import TypeVar

import pytest

import nbagent as nb
from nbagent.core.base.errors import HistoryTooLong
from nbagent.core.base.file_parts import label
from nbagent.core.base.messages import text_of
from nbagent.core.chat import Chat, thread_after
from nbagent.notebook import kernel, variables
from nbagent.notebook.cards import chat_card
from nbagent.notebook.cards.chat_card import ChatCard
from tests.until import until


class Box:
    """A chat's card without a page, and the messages it sent."""

    def __init__(self, monkeypatch, *steps, **options):
        self.sent = []
        monkeypatch.setattr(ChatCard, "send", lambda _card, content, **_: self.sent.append(content))
        model = nb.ScriptedModel(list(steps))
        self.chat = nb.Agent(model, name="guide", tools=[nb.interrupt_tool("ask")]).chat(**options)
        self.card = ChatCard(self.chat)

    async def say(self, text="", *, files=(), **more):
        """Send a message; return its errors, or nothing once its run has settled."""
        name = f"s{len(self.sent)}"
        ids = [f"{name}f{number}" for number in range(len(files))]
        for each, one in zip(ids, files, strict=True):
            self.card._handle({"type": "attach", "id": each, "file": one})
        message = {"type": "say", "submission": name, "text": text, "files": ids, **more}
        self.card._handle(message)
        await until(lambda: any(one.get("submission") == name for one in self.sent))
        (receipt,) = [one for one in self.sent if one.get("submission") == name]
        if receipt["ok"]:
            await self.chat.runs[-1].settled()
        return "".join(error["message"] for error in receipt["errors"])

    def names(self, text):
        """The names offered for a text."""
        self.card._handle({"type": "complete", "text": text})
        return [(one["name"], one["about"]) for one in self.sent[-1]["names"]]


@pytest.fixture
def box(monkeypatch):
    """A function that makes boxes, which are closed at the end."""
    made = []

    def box(*steps, **options):
        made.append(Box(monkeypatch, *steps, **options))
        return made[-1]

    yield box
    for one in made:
        one.card.detach()
        one.card.close()


def file(name, data=b"hi", media_type="text/plain"):
    """A file as the page sends it."""
    return {
        "name": name,
        "media_type": media_type,
        "data": base64.b64encode(data).decode(),
    }


async def test_c225_an_invalid_message_is_reported_and_nothing_runs(box, monkeypatch):
    """Empty or too long text, bad files, or an edited message that no longer exists."""
    monkeypatch.setattr(chat_card, "MAX_BYTES", 1000)
    made = box()
    broken = {"name": "x", "media_type": "text/plain", "data": "??"}
    for message, said in [
        ({"text": "  "}, "Write a message first."),
        ({"text": "x" * 100_001}, "The limit is 100,000 characters"),
        ({"text": "x", "files": [file("a")] * 11}, "at most 10 files"),
        ({"text": "x", "files": [file("a", b"x" * 2000)]}, "too large together"),
        ({"text": "x", "files": [broken]}, "could not be read"),
        ({"text": "x", "instead": "t9:m1"}, "no longer exists"),
    ]:
        assert said in await made.say(**message)
    assert made.chat.runs == ()


async def test_c225_files_tools_and_variables_are_sent_with_the_message(box, monkeypatch):
    """The typed text is unchanged; a variable is a bounded summary, and only of a public variable."""
    ours = {"df": list(range(1000)), "secret_key": "s3cret", "_hidden": 1}
    monkeypatch.setattr(kernel, "variables", lambda: {k: v for k, v in ours.items() if k[0] != "_"})
    made = box("Seen.", "Anew.")
    assert await made.say("/ask about @df and @_hidden, a@df.org", files=[file("a.txt")]) == ""
    parts = made.chat.messages[0]["content"]
    assert parts[0]["text"] == "/ask about @df and @_hidden, a@df.org\n\n(Use the tool ask.)"
    assert [part.get("name") for part in parts[1:]] == ["a.txt", "@df"]
    told = base64.b64decode(parts[2]["data"]).decode()
    assert told.startswith("list of 1000\n[0, 1, 2")
    assert len(told) < 200
    assert await made.say("Anew", instead="t1:m1", keep=[0, 1]) == ""
    parts = made.chat.messages[0]["content"]
    assert [part.get("name") for part in parts[1:]] == ["a.txt"]


async def test_c225_a_variable_that_fails_to_be_inspected_is_reported_and_nothing_is_sent(
    box, monkeypatch
):
    """Inspecting a variable may run any code; the message stays in the box."""

    class Odd:
        @property
        def shape(self):
            raise RuntimeError("no shape")

    monkeypatch.setattr(kernel, "variables", lambda: {"odd": Odd()})
    made = box()
    assert await made.say("see @odd") == "@odd could not be summarized: RuntimeError: no shape"
    assert made.chat.runs == ()


async def test_an_edited_message_that_names_a_deleted_variable_is_refused_and_nothing_is_sent(
    box, monkeypatch
):
    """The earlier version had its summary; a name that never was a variable stays plain text."""
    ours = {"df": [1, 2]}
    monkeypatch.setattr(kernel, "variables", lambda: ours)
    made = box("Seen.", "Anew.", "Now.")
    assert await made.say("see @df and @ada") == ""
    ours.clear()
    refused = "@df is no longer a variable. Define df again, or remove @df from the message."
    assert await made.say("see @df and @ada now", instead="t1:m1") == refused
    assert len(made.chat.messages) == 2
    assert await made.say("see @ada now", instead="t1:m1") == ""
    assert await made.say("and @df") == ""


async def test_c861_a_message_that_waits_for_the_turn_can_be_edited_until_it_is_sent(box):
    """The model gets only the new text, in a stored run too; afterwards the edit is refused."""
    made = box(nb.ScriptedModel.call("ask", question="Which?"), "Done.", store=nb.MemoryStore())

    def waiting():
        made.card._flush_all()
        shown = made.card._snapshot().view.items
        return [(one.key, one.text) for one in shown if one.type == "message" and one.editable]

    for text in ("start", "and hurry", "and @b"):
        assert await made.say(text) == ""
    _, (hurry, _), (second, _) = waiting()
    assert await made.say("and take your time", instead=hurry) == ""
    assert [text for _, text in waiting()] == ["start", "and take your time", "and @b"]
    run = made.chat.runs[-1]
    run.respond(run.interrupts[0], "this")
    await run
    said = [text_of(one) for one in run.messages if one["role"] == "user"]
    assert said == ["start", "and take your time", "and @b"]
    assert [text for _, text in waiting()] == ["start"]
    assert "was sent meanwhile" in await made.say("too late", instead=second)
    assert len(made.chat.runs) == 1


async def test_a_message_that_could_not_be_stored_is_reported_in_the_box(box, tmp_path):
    """The database was locked; the message is not in the chat, and can be sent again."""
    path = tmp_path / "runs.db"
    with nb.SQLiteStore(path, timeout=0.1) as store:
        made = box("One.", "Two.", store=store)
        assert await made.say("first") == ""
        lock = sqlite3.connect(path)
        lock.execute("BEGIN IMMEDIATE")
        assert "locked" in await made.say("second")
        lock.close()
        assert len(made.chat.runs) == 1
        assert await made.say("second") == ""
        assert made.chat.runs[-1].result.text == "Two."


async def test_c225_c688_c880_names_are_completed_and_values_never_shown(box, monkeypatch):
    """Variables have their types, tools their names; the typed text is in no trait."""
    known = {"key": "s3cret", "kept": 1, "os": base64, "Kind": 2, "K": dict, "KT": TypeVar("KT")}
    monkeypatch.setattr(kernel, "variables", lambda: known)
    made = box()
    assert made.names("@k") == [("kept", "int"), ("key", "str"), ("Kind", "int")]
    assert made.names("@o") == []
    assert [name for name, _ in made.names("/")] == ["ask"]
    made.card._thread.starters = ("/ask Ada", "Hello")
    assert [name for name, _ in made.names("")] == ["/ask Ada", "Hello", "/ask"]
    assert "s3cret" not in json.dumps(made.sent)
    assert "@k" not in json.dumps(made.card.get_state()["snapshot"])


async def test_c685_an_answer_is_copied_as_the_model_wrote_it(box):
    """The card sends the Markdown of each answer of the chat, while it streams too; nothing for another key."""
    written = "## One\n\n- a\n\n```py\nx\n```"
    made = box(written, "Two.")
    for prompt in ("first", "second"):
        assert await made.say(prompt) == ""
    found = {}
    for item in [*made.card.shown().items, None]:
        made.card._handle({"type": "copy", "key": item.key if item else "nowhere"})
        found[item.type if item else ""] = made.sent[-1]["text"]
        if item and item.type == "text" and item.blocks[0] != "<p>Two.</p>":
            assert made.sent[-1] == {"type": "copied", "key": item.key, "text": written}
    assert found == {"message": "", "text": "Two.", "": ""}


async def test_c225_an_unsent_message_is_back_after_a_reload_and_in_no_trait(box):
    """A page that says hello gets the text, bounded, until it is sent."""
    made = box("Heard.")

    def kept():
        made.card._handle({"type": "hello"})
        return made.sent[-1]["written"]

    def type_(text):
        made.card._handle({"type": "drafts", "interrupt": "", "drafts": text})

    made.card.comm = made.card.comm or object()
    await until(lambda: kept() == "")
    type_("half a thought")
    await until(lambda: kept() == "half a thought")
    assert "half a thought" not in json.dumps(made.card.get_state()["snapshot"])
    type_("x" * 200_000)
    await until(lambda: kept() == "x" * 100_000)
    assert await made.say("whole") == ""
    assert kept() == ""


async def test_c220_stop_ends_the_run_and_the_chat_continues(box):
    """A later message is answered by another run."""
    made = box([nb.ScriptedModel.call("ask")], "On we go.")
    assert await made.say("ask me") == ""
    made.card._handle({"type": "stop"})
    await until(lambda: made.chat.runs[0].status == "cancelled")
    assert await made.say("and now?") == ""
    assert [run.status for run in made.chat.runs] == ["cancelled", "completed"]


def test_a_table_is_described_by_its_columns_and_first_rows():
    """For a table of any size, if pandas is installed."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({f"c{n}": range(100_000) for n in range(100)})
    told = variables.summary(table)
    assert told.startswith("table (pandas.DataFrame) of 100,000 rows \u00d7 100 columns\n")
    told_as = nb.File(told.encode(), "text/plain", name="@orders").part
    assert label(told_as) == "@orders, table (pandas.DataFrame) of 100,000 rows \u00d7 100 columns"
    assert "  c0: int64" in told
    assert "… 40 more columns" in told
    assert len(told) <= variables.MAX_SUMMARY


async def test_c225_a_message_that_a_page_sends_twice_counts_once(box):
    """A page without a receipt sends its submission again; the first receipt goes to every page."""
    made = box("Heard.", "Heard again.")
    assert await made.say("once") == ""
    said = {"type": "say", "submission": "s0", "text": "once"}
    for _ in range(2):
        made.card._handle(said)
    assert await made.say("another") == ""
    assert [len(run.messages) for run in made.chat.runs] == [2, 4]


async def test_a_finished_run_is_followed_up_in_its_own_card(monkeypatch):
    """Earlier items keep their keys; the prompt becomes a message, and another run is below."""
    sent = []
    monkeypatch.setattr(ChatCard, "send", lambda _card, content, **_: sent.append(content))
    agent = nb.Agent(nb.ScriptedModel(["First.", RuntimeError("down"), "Third."]), name="guide")
    run = agent.run("one", show=False)
    await run
    card = ChatCard(Chat(thread_after(run)), run)
    before = card.view.snapshot()
    assert (before.head.prompt, before.head.chat, before.head.asks) == ("one", False, False)
    card._handle({"type": "hello", "keeps": True})
    await until(lambda: card.view.snapshot().head.asks)
    for number, text in enumerate(("two", "three")):
        card._handle({"type": "say", "submission": f"s{number}", "text": text})
        await until(lambda n=number: len(card.chat.runs) == n + 2)
        await card.chat.runs[-1].settled()
    after = card.view.snapshot()
    assert (after.head.prompt, after.head.chat, after.head.asks) == ("", True, False)
    said = [item.text for item in after.items if item.type == "message"]
    assert said == ["one", "two", "three"]
    kept = [item for item in after.items if item in before.items]
    assert kept == before.items
    assert [each.status for each in card.chat.runs] == ["completed", "failed", "completed"]
    card.detach()
    card.close()


async def test_a_flow_offers_no_box_to_follow_up(monkeypatch):
    """A flow has no conversation."""
    monkeypatch.setattr(ChatCard, "send", lambda *_, **__: None)

    @nb.flow
    async def count() -> int:
        return 3

    run = count.run()
    await run
    card = ChatCard(Chat(thread_after(run)), run)
    card.allow_staying_live()
    assert not card.view.snapshot().head.asks
    card.detach()
    card.close()


async def test_c776_a_conversation_that_is_too_long_is_shortened_or_its_message_edited(box):
    """The buttons are at the error of the newest run. Later messages begin with what fits."""

    def answer(messages):
        return HistoryTooLong("too long") if len(str(messages)) > 3_000 else "fits"

    made = box(*[answer] * 9)
    assert await made.say("x" * 1_500) == ""
    assert await made.say("y" * 2_500) == ""

    def ends():
        made.card._flush_all()
        return [one for one in made.card._snapshot().view.items if one.key.endswith(":end")]

    (end,) = ends()
    offered = [(each.name, each.label) for each in end.actions]
    assert offered == [("edit", "Edit message"), ("shorten", "Shorten")]
    press = {"type": "press", "notice": end.key, "action": "shorten"}
    made.card._handle(press)
    run = made.chat.runs[-1]
    await until(lambda: run.status == "completed")
    assert ends() == []
    assert len(run.messages) == 4
    assert await made.say("and now?") == ""
    assert made.chat.runs[-1].result.text == "fits"
    made.card._handle(press)  # it is not shown any more
    assert run.status == "completed"


async def test_c776_an_error_that_a_later_message_has_followed_is_not_shortened(box):
    """The page may still show its button."""
    made = box("one", HistoryTooLong("too long"), "two")
    for text in ("first", "second", "third"):
        assert await made.say(text) == ""
    made.card._handle({"type": "press", "notice": "t2:end", "action": "shorten"})
    assert [run.status for run in made.chat.runs] == ["completed", "failed", "completed"]
    assert "a later message has followed" in made.card._snapshot().view.items[-1].text
