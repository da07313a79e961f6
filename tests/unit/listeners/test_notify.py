"""``nb.notify(to=…)`` with functions: what a message has, when it is sent, and that no run waits for it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pytest
from pydantic import SecretStr

import nbagent as nb
from nbagent.core.hooks import hooks
from nbagent.core.run.run import session_of
from nbagent.listeners import notify
from tests.until import until

call = nb.ScriptedModel.call
Sent = list[notify.Notification]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    """The messages of one recipient, which gets each without a delay."""
    monkeypatch.setattr(notify, "GATHER", 0.0)
    messages: Sent = []
    with nb.notify(messages.append):
        yield messages
    assert hooks.live_runs == hooks.rows_elsewhere == ()


def banker(*steps: Any, name: str = "banker") -> nb.Agent:
    """An agent with a tool that needs an approval, and one that asks in words."""
    agent = nb.Agent(nb.ScriptedModel([*steps]), name=name)

    @agent.tool(approval=True)
    def pay(amount: Any) -> str:
        """Pay."""
        return "paid"

    @agent.tool
    async def ask(ctx: nb.ToolContext, text: str) -> str:
        """Ask."""
        return await ctx.ask(text)

    return agent


async def waiting(agent: nb.Agent, **options: Any) -> nb.Run:
    """A run that has asked."""
    run = agent.run("go", attended=True, show=False, **options)
    return await run.settled()


def flushed() -> None:
    """Have all that waits be sent, as at the end of the program."""
    for one in list(notify._made):
        one.flush(time.monotonic() + 30)


@pytest.mark.parametrize("kind", ["function", "coroutine"])
async def test_c720_a_question_that_opens_is_sent_with_its_run_and_the_way_to_answer(
    kind: Literal["function", "coroutine"], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The agent, the question in words, and how to answer; no input. To a function, sync or async."""
    monkeypatch.setattr(notify, "GATHER", 3_600.0)
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ann/trips/rome.ipynb")
    sent: Sent = []

    async def later(message: notify.Notification) -> None:
        await asyncio.sleep(0)
        sent.append(message)

    with nb.notify(sent.append if kind == "function" else later):
        place = tmp_path / "my runs.db"
        steps = [call("pay", amount=7), call("ask", text="Window or aisle?")], "done"
        run = await waiting(banker(*steps), store=place)
        await asyncio.to_thread(flushed)
        assert sent == [
            notify.Notification(
                "banker has 2 questions for you",
                "banker: pay asks for approval\n"
                'banker: ask asks "Window or aisle?"\n\n'
                "To answer, open rome.ipynb\n"
                f"To answer in a shell: nbagent answer {run.id} --store '{place}'",
                (run.id,),
            )
        ]
        assert str(sent[0]).startswith("banker has 2 questions for you\n\nbanker: pay")
        await run.cancel()


async def test_c721_the_questions_of_a_batch_or_of_several_runs_are_one_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten rows ask; five are listed and the others counted. Questions of two agents are listed by name."""
    monkeypatch.setattr(notify, "GATHER", 3_600.0)
    sent: Sent = []
    with nb.notify(sent.append):
        agent = banker()
        agent.model = nb.ScriptedModel(lambda _request: call("pay", amount=7))
        rows = [f"row {n}" for n in range(10)]
        batch = nb.map(
            agent, rows, prompt="{}", id="rows", concurrency=10, show=False, attended=True
        )
        await until(lambda: len(batch.questions) == 10)
        await asyncio.to_thread(flushed)
        assert [message.title for message in sent] == ["banker has 10 questions for you"]
        assert sent[0].text.count("banker: pay asks for approval") == notify.MAX_LISTED
        assert "\nand 5 more\n" in sent[0].text
        assert len(sent[0].runs) == 10
        batch.stop()
        first = await waiting(banker(call("pay", amount=7), name="left"))
        second = await waiting(banker(call("pay", amount=7), name="right"))
        await asyncio.to_thread(flushed)
        assert sent[1].title == "2 questions are waiting for you"
        assert "left: pay asks for approval\nright: pay asks for approval\n" in sent[1].text
        await asyncio.gather(first.cancel(), second.cancel())


async def test_c722_a_run_gets_one_message_a_minute_and_other_runs_do_not_wait(sent: Sent) -> None:
    """The second question of a run waits; a question of another run, which opens later, is sent before."""
    steps = call("ask", text="First?"), call("ask", text="Second?"), "done"
    run = await waiting(banker(*steps))
    await until(lambda: len(sent) == 1)
    run.respond(run.interrupts[0], "yes")
    await until(lambda: run.interrupts and run.interrupts[0].metadata["message"] == "Second?")
    other = await waiting(banker(call("ask", text="Other?"), name="other"))
    await until(lambda: len(sent) == 2)
    assert ["First?" in sent[0].text, "Second?" in sent[1].text, "Other?" in sent[1].text] == [
        True,
        False,
        True,
    ]
    await asyncio.to_thread(flushed)
    assert "Second?" in sent[2].text
    await asyncio.gather(run.cancel(), other.cancel())


async def test_c722_a_batch_gets_one_message_a_minute(sent: Sent) -> None:
    """A row that asks after another row's message waits, as a question of the same run does."""
    may_ask = asyncio.Event()

    async def reply(messages: Any) -> Any:
        if messages[0]["content"][0]["text"] == "later":
            await may_ask.wait()
        return call("ask", text="Row?")

    agent = banker()
    agent.model = nb.ScriptedModel(reply)
    batch = nb.map(agent, ["now", "later"], prompt="{}", id="two", attended=True, show=False)
    await until(lambda: len(sent) == 1)
    may_ask.set()
    await until(lambda: len(batch.questions) == 2)
    other = await waiting(banker(call("ask", text="Other?"), name="other"))
    await until(lambda: len(sent) == 2)
    assert sent[1].title == "other is waiting for your answer"
    batch.stop()
    await other.cancel()


async def test_c723_a_question_that_is_answered_at_once_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither are questions of a run that was stopped, and of outside systems."""
    monkeypatch.setattr(notify, "GATHER", 3_600.0)
    sent: Sent = []
    with nb.notify(sent.append):
        run = await waiting(banker(call("pay", amount=7), "done"))
        run.approve(run.interrupts[0])
        await run
        stopped = await waiting(banker(call("pay", amount=7)))
        await stopped.cancel()
        agent = nb.Agent(nb.ScriptedModel([call("order"), "done"]))

        @agent.tool
        async def order(ctx: nb.ToolContext) -> str:
            """Order."""
            assert ctx.external_token
            ctx.interrupt({"message": "Arrived?"}, external=True)

        outside = await waiting(agent)
        assert outside.interrupts
        await asyncio.to_thread(flushed)
        assert sent == []
        await outside.cancel()


async def test_c724_a_recipient_that_fails_or_hangs_delays_no_run_and_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, without the text of the error, which may have an address; a message that arrives resets it."""
    monkeypatch.setattr(notify, "GATHER", 0.0)
    tried: list[str] = []
    may_return = threading.Event()

    def recipient(message: notify.Notification) -> None:
        tried.append(message.title)
        if len(tried) in (1, 2, 5):
            raise ConnectionError("https://hooks.example/T0KEN")
        if len(tried) == 4:
            may_return.wait()

    def is_tried(count: int) -> bool:
        return len(tried) == count

    with nb.notify(recipient) as notifier:
        for count in range(1, 6):
            if count == 4:
                monkeypatch.setattr(notify, "TIMEOUT", 0.05)
            run = await waiting(banker(call("pay", amount=7), "done"))
            if count != 5:
                await until(partial(is_tried, count))
            if count == 4:
                await until(lambda: "no reply" in caplog.text)
            run.approve(run.interrupts[0])
            assert (await run).text == "done"
        run = await waiting(banker(call("pay", amount=7), "done"))
        await asyncio.to_thread(notifier.flush, time.monotonic() + 0.2)  # no more than one at once
        assert len(tried) == 4
        may_return.set()
        await until(partial(is_tried, 5))
        await asyncio.to_thread(flushed)
        await run.cancel()
    name = "the function recipient"
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if text.startswith("nb.notify")] == [
        f"nb.notify could not reach {name}: ConnectionError",
        f"nb.notify could not reach {name}: no reply in 0.05 seconds",
    ]


async def test_c725_text_of_others_is_bounded_and_shown_as_it_is_and_inputs_are_sent_if_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each question is one line; hidden characters have signs; a megabyte is cut; secrets are masked."""
    monkeypatch.setattr(notify, "GATHER", 3_600.0)
    plain: Sent = []
    full: Sent = []
    hostile = "Pay?\r\nBcc: all@example.org\n<b>x</b> \x1b[31m \u202eevil\u200b " + "x" * 1_000_000
    agent = banker(
        [call("ask", text=hostile), call("login", user="ann\u202e", password="hunter2")],
        name="a\nb\u202e",
    )

    @agent.tool(approval=True)
    def login(user: str, password: SecretStr) -> str:
        """Log in."""
        return user

    with nb.notify(plain.append), nb.notify(full.append, inputs=True):
        run = await waiting(agent)
        await asyncio.to_thread(flushed)
        await run.cancel()
    (short,), (long,) = plain, full
    assert short.title == "a b⟨U+202E⟩ has 2 questions for you"
    assert short.text.splitlines()[0].startswith(
        'a b⟨U+202E⟩: ask asks "Pay? Bcc: all@example.org <b>x</b> ⟨U+001B⟩[31m ⟨U+202E⟩evil⟨U+200B⟩ xxx'
    )
    assert len(short.text.splitlines()[0]) < 240
    assert "input" not in short.text
    assert '  input: {"user":"ann⟨U+202E⟩","password":"**********"}\n' in long.text
    assert "hunter2" not in long.text
    assert len(long.text) < 2_000


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # of Apprise, on Python 3.11
async def test_c727_a_notifier_can_be_stopped_and_the_same_recipient_replaces_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stopped one leaves nothing at runs; live runs are reported too; bad recipients are refused."""
    monkeypatch.setattr(notify, "GATHER", 0.0)
    sent: Sent = []
    run = await waiting(banker(call("ask", text="First?"), call("ask", text="Second?"), "done"))
    before = session_of(run).journal.listeners
    first = nb.notify(sent.append)
    again = nb.notify(sent.append)
    assert [repr(first), repr(again)] == [
        "<Notifier to the function append, stopped>",
        "<Notifier to the function append>",
    ]
    assert len(hooks.live_runs) == 1
    with nb.notify(partial(print, "ann")), nb.notify(partial(print, "bob")):
        assert len(hooks.live_runs) == 3  # two objects of one class are two recipients
    run.respond(run.interrupts[0], "yes")
    await until(lambda: len(sent) == 1)
    again.stop()
    assert session_of(run).journal.listeners == before
    assert hooks.live_runs == hooks.rows_elsewhere == ()
    await run.cancel()
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ("ann@example.org", {}, "an address with its service"),
        (7, {}, "must be a function or an address, got int"),
        (None, {"inputs": True}, "inputs= needs to="),
        (print, {"inputs": "yes"}, "inputs must be True or False"),
        ("nonsense://key:T0KEN@host", {}, "Apprise cannot use the address 'nonsense://…'"),
    ]
    for to, options, text in wrong:
        with pytest.raises(nb.errors.UsageError, match=text) as caught:
            nb.notify(to, **options)
        assert "T0KEN" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*fork")  # of Python 3.12, as there are threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_question_is_reported_once_by_the_process_that_drives_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not again for another handle of the run; a process that only follows the run reports nothing."""
    monkeypatch.setattr(notify, "GATHER", 3_600.0)
    sent: Sent = []
    with nb.notify(sent.append) as notifier:
        run = banker(call("ask", text="First?"), call("ask", text="Second?")).run(
            "go", attended=True, show=False
        )
        notifier.watch(session_of(run))
        await until(lambda: bool(run.interrupts))
        await asyncio.to_thread(flushed)
        assert [message.title for message in sent] == ["banker is waiting for your answer"]
        journal = session_of(run).journal
        notifier.note(journal, journal.state.pending[0])
        assert not notifier._waiting
        event = replace(journal.state.pending[0], id="other")
        monkeypatch.setattr(journal, "may_drive", False)
        notify._Listener(notifier, journal)(event)
        assert not notifier._waiting
        monkeypatch.setattr(journal, "may_drive", True)
        notify._Listener(notifier, journal)(event)
        assert list(notifier._waiting) == ["other"]
        await run.cancel()


async def test_a_fork_of_the_process_leaves_waiting_questions_to_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The child neither sends what its parent will send, nor waits at its end."""
    monkeypatch.setattr(notify, "GATHER", 3_600.0)
    sent: Sent = []
    with nb.notify(sent.append) as notifier:
        run = await waiting(banker(call("pay", amount=7)))
        journal = session_of(run).journal
        answered = replace(journal.state.pending[0], id="answered")
        child = os.fork()
        if not child:  # pragma: no cover - in the child
            began = time.monotonic()
            notifier.note(journal, answered)
            flushed()
            os._exit(len(sent) + (time.monotonic() - began > 5))
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        await asyncio.to_thread(flushed)
        assert len(sent) == 1
        await run.cancel()
