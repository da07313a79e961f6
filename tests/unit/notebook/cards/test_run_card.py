"""The live card as a widget, without a kernel."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
from contextlib import closing

import comm
import pytest
from comm.base_comm import BaseComm

import nbagent as nb
from nbagent.notebook import kernel
from nbagent.notebook.cards import display, front_end
from nbagent.notebook.cards.display import static_bundle
from nbagent.notebook.cards.run_card import RunCard
from nbagent.notebook.render import plain
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import Drawn, RetryPress
from tests.until import until


async def test_the_first_paint_has_the_prompt():
    """Before its hello is answered, a page draws the run's current state, not an empty frame."""
    run = nb.Agent(nb.ScriptedModel(["hi"]), name="guide").run("Hello there")
    card = RunCard(run)
    head = card.get_state()["snapshot"]["view"]["head"]
    assert (head["agent"], head["prompt"], head["status"]) == ("guide", "Hello there", "running")
    await run
    assert card.get_state()["snapshot"]["view"]["head"]["status"] == "completed"
    card.detach()
    card.close()


async def test_opening_a_comm_sends_the_prompt(monkeypatch):
    """The state in the comm's opening message is the same."""
    sent = []

    def opened(self):
        sent.append(self.get_state()["snapshot"]["view"]["head"]["prompt"])

    monkeypatch.setattr(RunCard, "open", opened)
    run = nb.Agent(nb.ScriptedModel(["hi"])).run("Hello there")
    RunCard(run).detach()
    await run
    assert sent == ["Hello there"]


class Prompt(BaseComm):
    """A comm whose page says hello before opening has ended."""

    def publish_msg(self, msg_type: str, **_):
        if msg_type == "comm_open":
            said = {"method": "custom", "content": {"type": "hello"}}
            self.handle_msg({"content": {"data": said}, "buffers": []})


async def test_a_greeting_sent_while_the_comm_is_opened_is_received(monkeypatch):
    """On a subshell's thread the hello may arrive before ``open`` returns."""
    monkeypatch.setattr(comm, "create_comm", Prompt)
    monkeypatch.setattr(kernel, "kernel_loop", asyncio.get_running_loop)
    run = nb.Agent(nb.ScriptedModel(["hi"])).run("Hello there")
    card = RunCard(run)
    await until(lambda: card.hello_count == 1)
    await run
    card.detach()
    card.close()


async def test_the_advice_for_a_lost_kernel_depends_on_the_store(tmp_path):
    """A run in memory is lost with the kernel; a run on disk can be opened again."""
    agent = nb.Agent(nb.ScriptedModel(["hi", "hi"]))
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        for kept, said in [(None, "Run the cell again"), (store, "nb.open_run(")]:
            run = agent.run("Hello", store=kept)
            card = RunCard(run)
            assert said in card.get_state()["snapshot"]["texts"]["gone"]
            await run
            card.detach()
            card.close()


async def test_c778_the_code_that_continues_a_run_has_the_names_of_the_notebook(
    tmp_path, monkeypatch
):
    """In the card of a lost kernel and in a saved notebook."""
    clerk = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("ask")]), name="clerk")
    clerk.add(nb.interrupt_tool("ask"))
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        run = clerk.run("Hello", store=store, attended=True, show=False)
        await run.settled()
        for known, names in [
            ({}, "agent=agent, store=store"),
            ({"mine": clerk, "db": store}, "agent=mine, store=db"),
        ]:
            monkeypatch.setattr(kernel, "variables", lambda known=known: known)
            card = RunCard(run)
            assert f'("{run.id}", {names})' in card.get_state()["snapshot"]["texts"]["gone"]
            card.detach()
            card.close()
            assert names in run.to_html()
        await run.cancel()


async def test_c778_a_shortened_result_says_the_size_of_the_whole_value():
    """Not of the part that is stored."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("look"), "done"]))
    agent.tool(name="look")(lambda: "x" * 500_000)
    run = agent.run("go", attended=False)
    await run
    assert "of these 500,000 characters" in run.to_markdown()


@pytest.mark.parametrize(
    "name", ["chat_gone", "inbox_gone", "form_gone", "gone", "gone_stored", "gone_default"]
)
def test_the_advice_for_a_lost_kernel_says_to_copy_typed_text_first(name):
    """A new card has no text of the old one, which a cell that runs again removes."""
    assert "is only here, so copy it first.\n" in TEXTS[name]


async def test_the_end_of_an_inner_run_is_not_the_end_of_the_card(monkeypatch):
    """A card becomes static when its run has ended, not when an inner agent has."""
    settled = []
    monkeypatch.setattr(display, "display", lambda *_, **__: None)
    monkeypatch.setattr(display.Live, "settle", lambda *_, **__: settled.append(run.status))
    inner = nb.Agent(nb.ScriptedModel(["inner"]), name="clerk")
    outer = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("clerk", prompt="do"), "outer"]))
    outer.add(inner.as_tool())
    run = outer.run("go", show=False)
    shown = display.Shown(run, earlier=[])
    shown.show(None)
    await run
    assert settled == ["completed"]
    shown.live.card.detach()


async def test_page_state_kept_in_memory_is_bounded():
    """Drafts too large for a reload can still be submitted; only a few thousand open items are stored."""
    got = []
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("note", text="?"), "done"]))

    @agent.tool(approval=True, editable=True)
    def note(text: str) -> str:
        got.append(len(text))
        return "noted"

    run = await agent.run("go", show=False, attended=True).settled()
    card, (asked,) = RunCard(run), run.interrupts

    def kept(text):
        drafts = {"fields": {"text": {"text": text}}}
        card._handle({"type": "drafts", "interrupt": asked.id, "drafts": drafts})
        (form,) = (i for i in card._snapshot().view.items if i.type == "form")
        return drafts, form.drafts

    assert len({str(part) for part in kept("short")}) == 1
    large, reloaded = kept("x" * 5_000_000)
    assert reloaded is None
    assert not card._drafts
    opened = [*map(str, range(50_000)), "k" * 10_000]
    card._handle({"type": "focus", "busy": True, "opened": opened[::-1]})
    assert card.busy
    assert 1_000 <= len(card.opened) <= 10_000
    assert max(map(len, card.opened)) < 1_000
    answer = {"type": "answer", "interrupt": asked.id, "submission": "s", "action": "approve"}
    card._handle(answer | {"drafts": large})
    assert ((await run).text, got) == ("done", [5_000_000])
    card.detach()
    card.close()


async def test_a_page_learns_how_its_answer_was_stored(monkeypatch, tmp_path):
    """If the file stays locked, the form keeps its fields, says why, and can be submitted again."""
    sent = []
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("note", text="?"), "done"]))

    @agent.tool(approval=True)
    def note(text: str) -> str:
        return "noted"

    with nb.SQLiteStore(tmp_path / "runs.db", timeout=0.1) as store:
        run = await agent.run("go", show=False, attended=True, store=store).settled()
        card, (asked,) = RunCard(run), run.interrupts
        monkeypatch.setattr(card, "send", sent.append)
        answer = {"type": "answer", "interrupt": asked.id, "submission": "s", "action": "approve"}
        with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
            other.execute("begin immediate")
            card._handle(answer)
            assert not sent
            await until(lambda: sent)
        (told,) = sent
        assert (told["type"], told["ok"]) == ("receipt", False)
        assert "another process has locked it" in told["errors"][0]["message"]
        card._handle(answer)
        assert (await run).text == "done"
        assert [m["ok"] for m in sent if m["type"] == "receipt"] == [False, True]
        card.detach()
        card.close()


async def test_retry_continues_a_failed_run_or_says_why_it_cannot(monkeypatch):
    """Pressed in time, the run continues and keeps its card. Pressed too late, it is refused in words, and nothing runs."""
    monkeypatch.setattr(display, "display", lambda *_, **__: None)
    run = nb.Agent(nb.ScriptedModel([RuntimeError("broke"), "fine"])).run("go", show=False)
    shown = display.Shown(run, earlier=[])
    shown.show(None)
    await run.settled()
    assert shown.live.is_needed()  # for its Retry button
    shown.live.card._take(RetryPress())
    assert shown.live.is_needed()
    assert (await run).text == "fine"
    assert not shown.live.is_needed()
    shown.live.card._take(RetryPress())
    told = shown.live.card.view.snapshot().items[-1].text
    assert told.startswith("The run could not be retried here: Only a failed run can be retried")
    shown.live.card.detach()


async def test_code_and_styles_of_all_cards_are_sent_once_at_a_third_of_their_size():
    """The first card's code, styles and sentences take less than 70 kB."""
    packed = front_end.FrontEnd().packed
    assert json.loads(gzip.decompress(packed)) == {
        "code": front_end.CARD,
        "find": front_end.FIND,
        "waiting": front_end.WAITING,
        "saved": front_end.SAVED,
        "css": front_end.SHEET,
        "texts": TEXTS,
    }
    assert len(packed) < 70_000


async def test_content_that_a_page_already_draws_is_saved_without_being_sent_again():
    """With the texts of a page that got every patch, the saved content is complete."""
    text = (
        "A **word**.\n\n| a | b |\n|---|--:|\n" + "| 1 < 2 | 3 |\n" * 400 + "\n```py\nx = 1\n```\n"
    )
    calls = [nb.ScriptedModel.slow(text, pieces=99), nb.ScriptedModel.call("look")]
    agent = nb.Agent(nb.ScriptedModel([calls, text]))

    @agent.tool
    def look() -> str:
        """Look."""
        return "seen"

    run = agent.run("go")
    card, sent = RunCard(run), []
    card.send_message = sent.append
    live = display.Live(card)
    await run
    card.keepers = 1
    live._keep()
    card.on_page_saved(False)
    card.detach()
    kept, whole = sent
    drawn = {item.key: item for item in card.view.snapshot().items}
    assert kept.seq == card._seq
    assert whole.seq is None
    for mime, read in (("text/html", "".join), ("text/plain", text_of_html)):
        pieces = [
            read([*drawn[piece.key].blocks, drawn[piece.key].tail])
            if isinstance(piece, Drawn)
            else piece
            if isinstance(piece, str)
            else front_end.SHEET[slice(*piece)]
            for piece in kept.bundle[mime]
        ]
        assert "".join(pieces) == static_bundle(run, card)[mime]
        assert sum(isinstance(piece, Drawn) for piece in kept.bundle[mime]) == 2
        assert not any(isinstance(piece, Drawn) for piece in whole.bundle[mime])
    assert len(kept.model_dump_json()) < len(text) / 2


def text_of_html(blocks: list[str]) -> str:
    """The text of HTML blocks, as a page reads it."""
    return "\n\n".join(filter(None, map(plain.text_of, blocks)))
