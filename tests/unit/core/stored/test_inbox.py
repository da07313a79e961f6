"""Open questions of a store, and the process that continues a run after its answer."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

import nbagent as nb
from nbagent.core.base.events import RunTaken
from nbagent.core.base.messages import canonical
from nbagent.core.base.process import this_process
from nbagent.core.run import heartbeat, lost_calls
from nbagent.core.run.session import find_session
from nbagent.core.stored import inbox as inbox_module
from nbagent.core.stored.inbox import InboxEntry
from nbagent.notebook import inbox_list
from nbagent.notebook.render import plain
from nbagent.notebook.view.inbox import InboxView
from nbagent.notebook.wire import FormItem, RecordItem
from tests.unit.core.clock import Clock
from tests.until import until

call = nb.ScriptedModel.call


class Login(BaseModel):
    """What a person types."""

    user: str
    password: SecretStr


def asker(store: Any, name: str, *, has_asked: bool = False) -> nb.Agent:
    """An agent that asks for an approval and a choice at once, or whose model has already asked."""
    asks = [] if has_asked else [[call("pay", to="Ada"), call("menu")]]
    model = nb.ScriptedModel([*asks, "Done."])
    agent = nb.Agent(model, name=name, store=store)

    @agent.tool(approval=True, editable=True)
    def pay(to: str) -> str:
        """Pay."""
        return f"paid {to}"

    @agent.tool
    def menu(ctx: nb.ToolContext) -> str:
        """Ask."""
        ctx.interrupt(nb.Choose(message="Which menu?", choices=["Fish", "Vegan"]))

    return agent


async def moved(store: nb.SQLiteStore, to: Path, owner: str) -> tuple[str, nb.SQLiteStore]:
    """Copy the only run of a store, as if another process had started it."""
    [run_id] = store.run_ids()
    told = [json.loads(row.data) for row in store.rows(run_id)]
    other = nb.SQLiteStore(to)
    from nbagent.core.base.events import parse  # noqa: PLC0415

    for event in told:
        if "owner" in event:
            event["owner"] = owner
    other.append(run_id, [parse(json.dumps(event)) for event in told], 0)
    return run_id, other


def drawn_inbox(waiting: InboxEntry) -> tuple[InboxView, dict[str, FormItem]]:
    """The inbox's view, and its forms by tool."""
    waiting.look()
    view = InboxView("runs.db")
    view.look(waiting.chosen(), waiting)
    items = view.snapshot().items
    return view, {item.tool: item for item in items if isinstance(item, FormItem)}


async def test_a_running_run_is_stranded_unless_its_process_may_be_alive(tmp_path: Path):
    """Or unless it is open here; a process on another machine is alive as long as it is not silent."""
    begun, store = nb.MemoryStore(), nb.SQLiteStore(tmp_path / "runs.db")
    await nb.Agent(nb.ScriptedModel(["Done."]), name="gone", store=begun).run("x", id="r")
    first = begun.read("r")[0]
    here = this_process()
    machine, _, start, host = here.split(":", 3)
    ended, alive = f"{machine}:999999999:{start}:{host}", f"{machine}:1:{_start_of(1)}:{host}"
    for run_id, owner in {"here": here, "ended": ended, "alive": alive}.items():
        store.append(run_id, [replace(first, owner=owner)], 0)
    waiting = InboxEntry(store)
    waiting.look()
    assert [one.run.id for one in waiting.stranded()] == ["here", "ended"]

    async def answer(_messages: Any) -> str:
        await asyncio.Event().wait()
        return ""

    agent = nb.Agent(nb.ScriptedModel(answer), name="gone", store=store)
    run = await nb.open_run("here", agent=agent, store=store, show=False)
    assert [one.run.id for one in waiting.stranded()] == ["ended"]
    await run.cancel()


async def run_waiting_elsewhere(folder: Path, agent: str) -> tuple[str, nb.SQLiteStore, str]:
    """A waiting run's id, its store, and the live process that drives the run."""
    store = nb.SQLiteStore(folder / "begun.db")
    run = await asker(store, agent).run("Ask", attended=True).settled()
    machine, _, _, host = this_process().split(":", 3)
    lives = f"{machine}:1:{_start_of(1)}:{host}"
    run_id, other = await moved(store, folder / "moved.db", lives)
    await run.cancel()
    del run
    gc.collect()  # its session had the run's id
    return run_id, other, lives


async def test_c282_quick_answers_leave_a_run_to_the_live_process_that_drives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second answer comes while this process follows the run after the first; neither names a driver."""
    run_id, other, _ = await run_waiting_elsewhere(tmp_path, "quick")
    monkeypatch.setattr(lost_calls, "MOMENT", 3600.0)  # the other process is slow
    waiting = InboxEntry(other, agents=[asker(other, "quick")])
    waiting.look()
    answers: dict[Any, Any] = {"pay": nb.Restart({"to": "Bob"}), "menu": nb.Respond("Fish")}
    by_tool = {asked.interrupt.tool_name: asked for asked in waiting.chosen()}
    owners = [
        (await waiting.answer(by_tool[tool], answer, by="form")).owner
        for tool, answer in answers.items()
    ]
    assert owners == ["", ""]
    assert find_session(run_id, other) is not None  # a session here waits for the other process


async def test_c448_code_answers_matching_questions_of_an_inbox_and_skips_the_rest() -> None:
    """Each answer works as in ``answers=``; a repeated or wrong answer changes nothing."""
    store = nb.MemoryStore()
    runs = []
    for amount in (20, 150, 99):
        agent = nb.Agent(nb.ScriptedModel([call("pay", amount=amount), "Done."]), store=store)

        @agent.tool(approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            return f"paid {amount}"

        runs.append(await agent.run("Pay", attended=True, show=False).settled())
    inbox = nb.inbox(store)
    small = inbox.where(tool="pay", amount=lambda amount: amount < 100)
    assert (inbox.count, small.count) == (3, 2)
    assert inbox.where(amount=150).count == 1
    assert inbox.where(tool="pay").where(tool="menu").count == 0
    assert inbox.where(lambda one: one.run.id == runs[0].id, colour="red").count == 0
    assert "filtered" in repr(small)
    [first, second] = small
    with pytest.raises(nb.errors.InvalidAnswer, match="True to run it"):
        await first.answer("yes")
    answers = [await one.answer(given) for one, given in ((first, True), (second, False))]
    assert [one.by for one in answers] == ["code", "code"]
    with pytest.raises(nb.Conflict, match="answered"):
        await first.answer(True)
    assert runs[1].status == "interrupted"
    await runs[0]
    await runs[2]
    outputs = [run.calls["pay"][0].output for run in runs if run.status == "completed"]
    assert outputs[0] == "paid 20"
    assert "rejected" in outputs[1]
    assert [one.interrupt.input for one in inbox] == [{"amount": 150}]


async def test_questions_of_an_age_match_every_age_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A question is as old as the time since it was asked; of two filters the stricter one counts."""
    store, clock = nb.MemoryStore(), Clock(1000.0)
    runs = []
    for name in ("old", "new"):
        runs.append(await clock.on(asker(store, name)).run("Ask", attended=True).settled())
        clock.now += 60
    monkeypatch.setattr(inbox_module, "time", SimpleNamespace(time=lambda: 1100.0))
    everything = InboxEntry(store)

    def agents(*ages: float) -> set[str]:
        found = everything
        for age in ages:
            found = found.where(older_than=age)
        return {asked.run.agent for asked in found.look()}

    assert agents(100) == agents(40, 100) == agents(100, 40) == {"old"}
    assert (agents(40), agents(100.5)) == ({"old", "new"}, set())
    for run in runs:
        await run.cancel()


async def test_c448_an_inbox_reports_other_questions_even_if_their_number_is_the_same() -> None:
    store = nb.MemoryStore()
    run = await asker(store, "teller").run("Ask", attended=True, show=False).settled()
    inbox = nb.inbox(store)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(inbox.changed(), 0.3)
    await run.cancel()
    again = await asker(store, "teller").run("Ask", attended=True, show=False).settled()
    assert await asyncio.wait_for(inbox.changed(), 20) == 2
    await again.cancel()


@pytest.mark.parametrize("where", ["there", "here", "kept"])
async def test_c282_an_answer_is_sent_to_the_live_process_or_stored(
    tmp_path: Path, where: str
) -> None:
    """The live process continues the run, or this process's agent of that name, or a later process."""
    store = nb.SQLiteStore(tmp_path / "begun.db")
    run = await asker(store, f"asker {where}").run("Ask", attended=True).settled()
    assert len(run.interrupts) == 2
    machine, _, start, host = this_process().split(":", 3)
    owner = (
        f"{machine}:1:{_start_of(1)}:{host}"
        if where == "there"
        else f"{machine}:999999:{start}:{host}"
    )
    run_id, other = await moved(store, tmp_path / "moved.db", owner)
    await run.cancel()
    del run
    gc.collect()  # its session had the run's id
    agents = [asker(other, f"asker {where}")] if where == "here" else []
    if where != "here":
        _forget(f"asker {where}")
    waiting = InboxEntry(other, agents=agents)
    view, forms = drawn_inbox(waiting)
    told = {
        "there": f"in process 1 on {host}",
        "here": "in this notebook",
        "kept": "once someone has the run open",
    }
    assert {form.facts[-1].value for form in forms.values()} == {told[where]}
    assert forms["menu"].spec is not None
    assert forms["pay"].remember == [] or where == "here"
    for asked in waiting.chosen():
        answers = {
            "pay": nb.Restart({"to": "Bob"}),
            "menu": nb.Respond("Fish"),
            "login": nb.Reject(),
        }
        await waiting.answer(asked, answers[asked.interrupt.tool_name], by="form")
    waiting.look()
    view.look(waiting.chosen(), waiting)
    records = [item for item in view.snapshot().items if isinstance(item, RecordItem)]
    assert len(records) == 2
    assert ("once someone has" in records[0].decision) == (where == "kept")
    if where == "here":
        again = await nb.open_run(run_id, agent=agents[0], store=other, show=False)
        await again.settled()
        assert "paid Bob" in str(again.calls["pay"][0].output)
    else:
        assert other.read(run_id)[-1].type == "resolved"


async def test_c282_a_run_released_by_a_live_process_continues_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inbox names both places; the answer names none, and after a moment this process takes over."""
    run_id, other, lives = await run_waiting_elsewhere(tmp_path, "dropped")
    monkeypatch.setattr(lost_calls, "MOMENT", 0.1)
    waiting = InboxEntry(other, agents=[asker(other, "dropped", has_asked=True)])
    _, forms = drawn_inbox(waiting)
    told = {form.facts[-1].value for form in forms.values()}
    host = lives.split(":", 3)[3]
    assert told == {f"in process 1 on {host}, or here if that process no longer runs it"}
    for asked in waiting.chosen():
        assert (await waiting.answer(asked, nb.Reject("no"), by="form")).owner == ""
    gc.collect()
    await until(lambda: other.read(run_id)[-1].type == "run_completed")
    [taken] = [event for event in other.read(run_id) if isinstance(event, RunTaken)]
    assert (taken.by, taken.owner, taken.gone) == ("vacancy", this_process(), lives)


async def test_only_reading_runs_sends_no_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list, an inbox and an open handle write nothing; only a driver sends heartbeats."""
    begun: list[object] = []

    def begin(store: object) -> Any:
        begun.append(store)
        return lambda: None

    store = nb.SQLiteStore(tmp_path / "begun.db")
    run = await asker(store, "looked at").run("Ask", attended=True).settled()
    machine, _, _, host = this_process().split(":", 3)
    run_id, other = await moved(store, tmp_path / "moved.db", f"{machine}:1:{_start_of(1)}:{host}")
    await run.cancel()
    monkeypatch.setattr(heartbeat, "start_beating", begin)
    before = len(other.read(run_id))
    agent = asker(other, "looked at", has_asked=True)
    opened = await nb.open_run(run_id, agent=agent, store=other, show=False)
    await opened.settled()
    assert len(InboxEntry(other).look()) == 2
    assert nb.runs(other)[0].status == "interrupted"
    assert (begun, len(other.read(run_id))) == ([], before)
    await opened.take_over()
    await until(lambda: begun == [other])


def _start_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _forget(name: str) -> None:
    """Remove this process's agents of that name."""
    from nbagent.core import registry  # noqa: PLC0415

    gc.collect()
    for one in list(registry._known):
        if getattr(one, "name", None) == name:
            del registry._known[one]


async def test_runs_of_one_id_in_two_stores_are_two_runs(tmp_path: Path) -> None:
    """Two stores can have a run of one id after an import; an answer changes only its own store's run."""
    store, other = nb.SQLiteStore(tmp_path / "one.db"), nb.SQLiteStore(tmp_path / "two.db")
    run = await asker(store, "twin").run("Ask", attended=True).settled()
    other.put(run.id, store.rows(run.id))
    waiting = InboxEntry(other)
    [pay, _] = waiting.look()
    await waiting.answer(pay, nb.Reject("in two"), by="form")
    assert len(run.interrupts) == 2
    assert any(event.type == "resolved" for event in other.read(run.id))
    again = InboxEntry(nb.SQLiteStore(tmp_path / "one.db"))  # a second store of the file
    [pay, _] = again.look()
    assert again.continuation(pay).place == "here"
    await again.answer(pay, nb.Reject("in one"), by="form")
    assert len(run.interrupts) == 1


async def test_a_path_is_accepted_wherever_a_store_is(tmp_path: Path) -> None:
    """A path can replace the store of an agent, a run, a list, an inbox, an opened run and an export."""
    place = str(tmp_path / "runs.db")
    agent = asker(place, "placed")
    run = await agent.run("Ask", attended=True).settled()
    second = await asker(None, "placed").run("Ask", attended=True, store=Path(place)).settled()
    assert {one.id for one in nb.runs(place)} == {run.id, second.id}
    assert nb.inbox(place).count == 4
    again = await nb.open_run(run.id, store=place, show=False)
    assert again.status == "interrupted"
    assert nb.export_run(run.id, store=place)
    assert not nb.verify_run(run.id, store=place).problems


@pytest.mark.parametrize("where", ["there", "here", "kept"])
async def test_c282_a_secret_is_asked_for_only_where_it_reaches_its_body(
    tmp_path: Path, where: str
) -> None:
    """If the run continues in another process, or nowhere yet, the inbox shows no field for the secret."""
    store, name = nb.SQLiteStore(tmp_path / "begun.db"), f"keeper {where}"

    def keeper(kept: nb.SQLiteStore) -> nb.Agent:
        agent = nb.Agent(nb.ScriptedModel([call("login"), "Done."]), name=name, store=kept)

        @agent.tool
        def login(ctx: nb.ToolContext) -> Login:
            """Ask for a login."""
            ctx.interrupt("Who?")

        return agent

    run = await keeper(store).run("Log in", attended=True).settled()
    machine, _, start, host = this_process().split(":", 3)
    there, gone = f"{machine}:1:{_start_of(1)}:{host}", f"{machine}:999999:{start}:{host}"
    _, other = await moved(store, tmp_path / "moved.db", there if where == "there" else gone)
    await run.cancel()
    agents = [keeper(other)] if where == "here" else []
    if where != "here":
        _forget(name)
    _, forms = drawn_inbox(InboxEntry(other, agents=agents))
    form = forms["login"]
    assert (form.instead is not None) == (where == "here")
    assert ("answer" in [action.name for action in form.actions]) == (where == "here")


async def test_an_external_question_has_no_form_and_shows_its_deadline(
    tmp_path: Path,
) -> None:
    """An external question has no form and needs no person; text and HTML list both questions."""
    agent = nb.Agent(
        nb.ScriptedModel([[call("hook"), call("pay", to="Ada")], "Done."]),
        name="waiter",
        store=tmp_path / "runs.db",
    )

    @agent.tool
    def hook(ctx: nb.ToolContext) -> str:
        """Wait for another system."""
        ctx.interrupt(external=True)

    @agent.tool
    def pay(to: str, ctx: nb.ToolContext) -> str:
        """Pay."""
        ctx.interrupt("Pay?", expires_in=3600)

    await agent.run("Ask", attended=True).settled()
    waiting = InboxEntry(agent.store)
    view, forms = drawn_inbox(waiting)
    head = view.snapshot().head
    assert (head.status_text, head.questions) == ("2 questions", 1)
    assert forms["hook"].actions == []
    assert forms["pay"].expires_at is not None
    shown = plain.bundle(view.snapshot())
    assert "<button" not in shown["text/html"]
    assert re.search(r"\bpay .*, for \d+ s$", repr(nb.inbox(agent.store)), re.MULTILINE)
    assert "older than 2 h 0 min" in repr(nb.inbox(agent.store, older_than="2h"))
    for told in (shown["text/plain"], shown["text/html"], repr(nb.inbox(agent.store))):
        assert "pay" in told
        assert "hook" in told


LIKE = {
    "an input called agent": ({"agent": "a"}, {"agent": "b"}),
    "an input called tool": ({"tool": "a"}, {"tool": "b"}),
    "an input called older_than": ({"older_than": 1}, {"older_than": 2}),
    "true and one": ({"flag": True}, {"flag": 1}),
    "one and one point zero": ({"flag": 1}, {"flag": 1.0}),
    "a nested true": ({"flag": [True]}, {"flag": [1]}),
    "an input that only others have": ({"flag": 0}, {"flag": 0, "force": 1}),
    "null and absent": ({"flag": None}, {}),
}


@pytest.mark.parametrize("what", LIKE)
async def test_c456_like_compares_inputs_as_canonical_json_whatever_their_names(what) -> None:
    """Only questions with the same JSON are alike, in either direction; the order of an object's keys does not count."""
    store = nb.MemoryStore()

    def act(**inputs: Any) -> str:
        """Act."""
        return "done"

    schema = {"type": "object", "additionalProperties": True}
    tool = nb.tool(approval=True, schema=schema)(act)
    same = [{"at": {"x": 1, "y": 2}}, {"at": {"y": 2, "x": 1}}]
    for given in (kind | at for kind in LIKE[what] for at in same for _ in range(2)):
        agent = nb.Agent(nb.ScriptedModel([call("act", **given)]), tools=[tool], store=store)
        await agent.run("Go", attended=True, show=False).settled()
    inbox = nb.inbox(store)
    for first in inbox:
        alike = [canonical(one.interrupt.input) for one in inbox.like(first)]
        assert alike == [canonical(first.interrupt.input)] * 4


@pytest.mark.parametrize("fails", ["reading", "storing", "the filter"])
async def test_p7_a_standing_answer_outlives_a_failing_store_and_says_if_it_ended(
    fails, monkeypatch, caplog
) -> None:
    """A store that fails once is tried again, and only the question that is still open; another error is reported."""
    monkeypatch.setattr(inbox_list, "EVERY", 0.001)
    failures = [nb.errors.StoreError("the disk is full")]

    class Failing(nb.MemoryStore):
        def stamp(self) -> object:
            if fails == "reading" and questions and failures:
                raise failures.pop()
            return super().stamp()

        def append(self, run_id: str, events: Any, expected: int) -> None:
            if fails == "storing" and events[0].type == "resolved" and failures:
                raise failures.pop()
            super().append(run_id, events, expected)

    def is_chosen(_: Any) -> bool:
        if fails == "the filter":
            raise LookupError("no such row")
        return True

    store, questions, did = Failing(), [], []

    def pay(amount: int) -> None:
        """Pay."""
        did.append(amount)

    async def ask(*amounts: int) -> nb.Run:
        model = nb.ScriptedModel([[call("pay", amount=n) for n in amounts], "Done."])
        agent = nb.Agent(model, tools=[nb.tool(approval=True)(pay)], store=store)
        return await agent.run("Pay", attended=True, show=False).settled()

    standing = await nb.inbox(store).where(is_chosen).approve(standing=True)
    run = await ask(1, 2)
    questions.append(run)
    await until(lambda: caplog.messages)
    if fails == "the filter":
        assert "a standing answer has ended" in caplog.text
        assert "no longer answered: LookupError: no such row" in repr(standing)
        return
    await run
    assert sorted(did) == [1, 2]
    assert "trying again: the disk is full" in caplog.text
    assert "until .end()" in repr(standing)
    assert standing.refused == []
    standing.end()


async def test_an_inbox_of_an_age_has_only_older_questions_and_the_larger_of_two_ages_counts(
    monkeypatch,
) -> None:
    """In either order, so that a filter never widens an inbox."""
    store = nb.MemoryStore()
    await asker(store, "old").run("Pay", attended=True, show=False).settled()
    asked_at = nb.inbox(store)[0].at
    monkeypatch.setattr(inbox_module, "time", SimpleNamespace(time=lambda: asked_at + 100))
    assert [nb.inbox(store, older_than=age).count for age in (60, 200)] == [2, 0]
    ages = [(60, 80), (60, 200), (200, 60)]
    inboxes = [nb.inbox(store, older_than=one).where(older_than=other) for one, other in ages]
    assert [inbox.count for inbox in inboxes] == [2, 0, 0]
