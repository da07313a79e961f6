"""A chat: a thread of runs, whose messages are sent, edited and opened again."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.chat import Chat, thread_after

call = nb.ScriptedModel.call


def agent(*steps):
    """An agent with a tool that asks."""
    return nb.Agent(nb.ScriptedModel(list(steps)), name="guide", tools=[nb.interrupt_tool("ask")])


def chat_texts(chat):
    """The texts of the conversation."""
    return [part["text"] for m in chat.messages for part in m["content"] if part["type"] == "text"]


async def test_c219_each_message_continues_the_conversation():
    """Each message is a run, whose id has its place in the thread."""
    chat = agent("One.", "Two.").chat()
    assert (repr(chat), chat.runs, chat.messages) == ("<Chat with guide: 0 messages>", (), ())
    assert (await chat.send("first")).text == "One."
    assert (await chat.send("second")).text == "Two."
    assert chat_texts(chat) == ["first", "One.", "second", "Two."]
    assert [run.id for run in chat.runs] == [f"{chat.id}.1", f"{chat.id}.2"]
    assert repr(chat) == "<Chat with guide: 2 messages, completed>"


async def test_c220_a_message_sent_while_a_question_waits_is_read_after_the_answer():
    """It goes to the asking run, and neither answers nor rejects the question."""
    chat = agent([call("ask")], "Both read.").chat()
    run = await chat.send("ask me").settled()
    assert chat.send("and this") is run
    assert (run.status, len(chat.runs)) == ("interrupted", 1)
    run.respond(run.interrupts[0], "yes")
    assert (await run).text == "Both read."
    assert chat_texts(chat) == ["ask me", "and this", "Both read."]


async def test_c221_an_edited_message_replaces_the_messages_after_it():
    """The thread continues before it; replaced open runs are stopped, and their journals stay."""
    store = nb.MemoryStore()
    chat = agent("One.", "Two.", [call("ask")], "Other.").chat(store=store)
    first = chat.send("first")
    await first
    second = chat.send("second")
    await second
    third = await chat.send("third").settled()
    other = chat.edit(second, "another second")
    assert (await other).text == "Other."
    assert chat.runs == (first, other)
    assert chat_texts(chat) == ["first", "One.", "another second", "Other."]
    with pytest.raises(nb.errors.RunError):
        await third
    assert third.status == "cancelled"
    assert len(store.run_ids()) == 4
    with pytest.raises(nb.errors.UsageError, match="is not a run of this chat"):
        chat.edit(third, "x")


async def test_c221_a_message_that_cannot_be_sent_changes_nothing():
    """Neither the thread nor the run that it would replace."""
    chat = agent([call("ask")]).chat()
    run = await chat.send("ask me").settled()
    with pytest.raises(nb.errors.UsageError):
        chat.edit(run, "  ")
    assert (chat.runs, run.status) == ((run,), "interrupted")
    await chat.stop()
    assert run.status == "cancelled"


async def test_c222_a_thread_is_opened_again_by_its_id(tmp_path):
    """The newest branch opens with its questions, and the next message continues it."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        chat = agent("One.", "Two.", "Other.", [call("ask")]).chat("first", id="notes", store=store)
        await chat.runs[0]
        await chat.send("second")
        await chat.edit(chat.runs[1], "another")
        await chat.send("ask me").settled()
        messages = chat.messages
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        again = agent("Answered.", "More.").chat("first", id="notes", store=store)
        assert again.messages == messages
        assert [run.id for run in again.runs] == ["notes.1", "notes.3", "notes.4"]
        asks = again.runs[-1]
        asks.respond(asks.interrupts[0], "yes")
        assert (await asks).text == "Answered."
        await again.send("go on")
        assert again.runs[-1].id == "notes.5"
        assert chat_texts(again)[-4:] == ["ask me", "Answered.", "go on", "More."]


async def test_c222_a_chat_that_starts_from_a_run_sends_its_first_message_once():
    """The cell of a named chat runs again, with the run that the chat continues."""
    guide, store = agent("One.", "Two."), nb.MemoryStore()
    run = guide.run("first", store=store)
    await run
    for _ in range(2):
        chat = guide.chat("second", id="notes", after=run, store=store)
        await chat.runs[-1]
        assert chat_texts(chat) == ["first", "One.", "second", "Two."]


async def test_c222_follow_ups_of_a_run_are_opened_with_it(tmp_path):
    """The thread has the run's id, in a later process too; a chat of the same name is separate."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        run = agent("One.", "Two.").run("first", id="march", store=store)
        await run
        await Chat(thread_after(run)).send("second")
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        guide = agent("Three.", "Mine.", "Other.")
        run = await nb.open_run("march", agent=guide, store=store)
        again = Chat(thread_after(run))
        assert again.runs[0] is run
        await again.send("third")
        assert [each.id for each in again.runs] == ["march", "march.1", "march.2"]
        assert chat_texts(again) == ["first", "One.", "second", "Two.", "third", "Three."]
        assert chat_texts(guide.chat(id="march", store=store)) == chat_texts(again)
        await guide.chat(id="may", store=store).send("mine")
        run = guide.run("other", id="may", store=store)
        await run
        assert Chat(thread_after(run)).runs == (run,)


async def test_c222_a_thread_id_is_a_short_word():
    """Other ids are refused."""
    for wrong in ("", "a b", 7, "x" * 101):
        with pytest.raises(nb.errors.UsageError, match="a chat's id"):
            agent().chat(id=wrong)


async def test_c880_starters_that_are_no_texts_are_refused():
    """``starters=`` is a list of first messages."""
    for wrong in ("Hello", [""], [7], 7):
        with pytest.raises(nb.errors.UsageError, match="starters must be a list of first messages"):
            agent().chat(starters=wrong)


async def test_c223_a_thread_can_start_from_an_existing_run():
    """``after=`` takes the conversation of any run."""
    guide = agent("One.", "Two.")
    run = guide.run("first")
    await run
    chat = guide.chat("second", after=run)
    await chat.runs[-1]
    assert chat.runs[0] is run
    assert chat_texts(chat) == ["first", "One.", "second", "Two."]


def test_c223_synchronous_code_sends_and_waits():
    """In a script, with ``answers=`` for questions."""
    chat = agent([call("ask")], "Done.", "More.").chat()
    assert chat.send_sync("ask me", answers=["yes"]).text == "Done."
    assert chat.send_sync("and more").text == "More."


async def test_c224_of_two_that_continue_one_thread_one_is_first():
    """The second gets an error, and its thread is unchanged: open the thread again to continue."""
    store = nb.MemoryStore()
    one, other = (agent("Mine.").chat(id="notes", store=store) for _ in range(2))
    await one.send("first")
    with pytest.raises(nb.Conflict, match=r"was continued elsewhere.*Open it again"):
        other.send("second")
    assert other.runs == ()
    again = agent("Goes on.").chat(id="notes", store=store)
    await again.send("second")
    assert chat_texts(again) == ["first", "Mine.", "second", "Goes on."]


@pytest.mark.parametrize("given", [{}, {"thread": nb.Agent(nb.ScriptedModel([]))}, {"agent": 5}])
def test_c391_a_chat_is_created_by_its_agent(given: dict[str, Any]) -> None:
    """The error of the class says how, for any arguments."""
    with pytest.raises(nb.errors.UsageError, match=r"agent\.chat\(\)"):
        nb.Chat(**given)


async def test_c224_a_store_that_writes_later_reports_who_was_first_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """The error is raised where the message is awaited; the thread is unchanged."""
    with nb.SQLStore(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        one, other = (agent("Mine.").chat(id="notes", store=store) for _ in range(2))
        await one.send("first")
        with pytest.raises(nb.Conflict, match=r"elsewhere.*again"):
            await other.send("second")
        assert other.runs == ()


async def test_c220_a_message_sent_as_the_run_ends_is_sent_in_the_next_run(tmp_path: Path) -> None:
    """A store that writes later reports the end only after the message; awaiting it returns its own answer."""
    with nb.SQLStore(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        for n in range(12):
            chat = agent("One.", "Two.").chat(id=f"c{n}", store=store)
            answered, loop = asyncio.Event(), asyncio.get_running_loop()

            def note(event: Any, loop: Any = loop, answered: asyncio.Event = answered) -> None:
                if event.type == "model_responded":
                    loop.call_soon_threadsafe(answered.set)

            chat.send("first").subscribe(note)
            await answered.wait()
            await asyncio.sleep(n * 0.0005)
            assert (await chat.send("second")).text == "Two."
            assert chat_texts(chat) == ["first", "One.", "second", "Two."]


@pytest.mark.parametrize("second", ["chat", "open_run"])
async def test_c220_two_handles_of_one_run_ask_the_model_once(second: str, tmp_path: Path) -> None:
    """The cell of a chat runs again while its run asks the model."""
    asked: list[int] = []

    async def model(messages: Any) -> Any:
        asked.append(len(messages))
        await asyncio.sleep(0.1)
        return "done" if len(messages) > 2 else nb.ScriptedModel.call("look")

    guide = nb.Agent(nb.ScriptedModel(model), name="guide", store=tmp_path / "runs.db")
    guide.tool(name="look")(lambda: "seen")
    first = guide.chat(id="notes").send("first")
    await asyncio.sleep(0.05)
    if second == "chat":
        sent = guide.chat(id="notes").send("second")
    else:
        again = await nb.open_run("notes.1", agent=guide, show=False)
        sent = guide.run("second", after=again, pending="queue", show=False)
    await asyncio.gather(first, sent)
    assert len(asked) == sum(event.type == "model_responded" for event in sent.journal)


async def test_c221_a_message_whose_run_could_not_be_stored_leaves_the_chat_usable(
    tmp_path: Path,
) -> None:
    """The database was locked; its error is raised, and the next message is asked."""
    path = tmp_path / "runs.db"
    with nb.SQLiteStore(path, timeout=0.1) as store:
        chat = agent("One.", "Three.").chat(id="notes", store=store)
        await chat.send("first")
        lock = sqlite3.connect(path)
        lock.execute("BEGIN IMMEDIATE")
        lost = chat.send("second")
        for wait in (lost, lost.settled()):
            with pytest.raises(nb.errors.StoreError, match="locked"):
                await wait
        replaced = chat.runs
        with pytest.raises(nb.errors.StoreError, match="locked"):
            await chat.edit(chat.runs[0], "another")
        lock.close()
        assert chat.runs == replaced
        assert (await chat.send("third")).text == "Three."
        assert chat_texts(chat) == ["first", "One.", "third", "Three."]
        assert chat_texts(agent().chat(id="notes", store=store)) == chat_texts(chat)


async def test_c222_a_chat_opens_with_its_newest_branch_after_a_replaced_run_was_deleted() -> None:
    """Its runs' numbers then have a gap; a run of another name with a number is not of the chat."""
    store = nb.MemoryStore()
    guide = agent("One.", "Two.", "Other.", "Three.", "Alone.")
    chat = guide.chat(id="notes", store=store)
    await chat.send("first")
    await chat.send("second")
    await chat.edit(chat.runs[1], "other")
    await chat.send("third")
    nb.delete_run("notes.2", store=store)
    await guide.run("alone", id="notes.2026", store=store, show=False)
    again = guide.chat("first", id="notes", store=store)
    assert [run.id for run in again.runs] == ["notes.1", "notes.3", "notes.4"]
