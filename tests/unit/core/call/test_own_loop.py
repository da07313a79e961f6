"""A body with a loop of its own: ``ctx.write``, ``ctx.row``, ``ctx.approve`` and steps without a row."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import nbagent as nb
from nbagent.core.base.errors import Misuse, ToolError, ToolFailed
from nbagent.core.base.events import Interrupted, StepFinished, TextWritten
from nbagent.core.call.own_loop import MAX_WRITTEN
from nbagent.core.call.setup import CallTakenOver
from nbagent.notebook.view.view import SingleRunView
from tests.unit.core.behavior.test_one_answer import answered_by_twenty
from tests.until import until

PAY = {"amount": 5}
NESTED: dict[str, Any] = {}
for _ in range(5_000):
    NESTED = {"properties": {"a": NESTED}}
SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}


def kinds(run: nb.Run) -> list[str]:
    """The types of the run's events, without its start."""
    return [event.type for event in run.journal][2:]


def drawn(run: nb.Run) -> list[tuple[Any, ...]]:
    """The items of the stored run, in short."""
    view = SingleRunView(run.id)
    for event in run.journal:
        view.apply(event)
    return items(view)


def items(view: SingleRunView) -> list[tuple[Any, ...]]:
    return [
        ("text", "".join(i.blocks)) if i.type == "text" else (i.type, getattr(i, "name", ""))
        for i in view.snapshot().items
    ]


async def played(body: Any, answers: Any = None, **options: Any) -> nb.Run:
    """The run of a flow with this body, after its end."""
    flow = nb.flow(name="loop", tools=["pay"], **options)(body)
    run = flow.with_options(answers=answers).run()
    await run
    return run


async def test_c740_written_text_is_stored_with_the_next_event_in_its_place_among_the_rows():
    """Pieces are joined; a text that the body also returns is drawn once."""

    async def body(ctx: nb.ToolContext) -> str:
        ctx.write("One **t")
        ctx.write("wo** <script>")
        await ctx.step("look", lambda: 1)
        ctx.write("Done.")
        return "Done."

    run = await played(body)
    assert kinds(run) == [
        "text_written",
        "step_finished",
        "text_written",
        "tool_finished",
        "run_completed",
    ]
    first, step, last, call = drawn(run)
    assert first == ("text", "<p>One <strong>two</strong> &lt;script&gt;</p>")
    assert (step, last, call) == (("call", "look"), ("text", "<p>Done.</p>"), ("call", "loop"))


@pytest.mark.parametrize("ends", ["fails", "is stopped"])
async def test_c741_text_of_a_body_that_fails_or_is_stopped_is_kept(ends: str):
    """No event followed the text, so it is stored by itself."""
    waits = asyncio.Event()

    @nb.flow
    async def loop(ctx: nb.ToolContext) -> None:
        ctx.write("before the end")
        waits.set()
        if ends == "fails":
            raise ValueError("no")
        await asyncio.Event().wait()

    run = loop.run()
    await waits.wait()
    if ends == "is stopped":
        await run.cancel()
    with pytest.raises(nb.NbagentError):
        await run
    assert [e.text for e in run.journal if isinstance(e, TextWritten)] == ["before the end"]


async def test_c742_a_body_that_runs_again_repeats_no_text_and_no_row():
    """The same text outside of steps, the same rows and approvals are recognized; other text is added."""
    again: list[int] = []

    @nb.flow
    async def loop(ctx: nb.ToolContext) -> str:
        again.append(1)
        ctx.write("Hello. ")

        async def think() -> str:
            ctx.write("Thinking. ")
            return "x"

        await ctx.step("think", think, shown=False)
        await ctx.row("search", {"for": "x"}, id="a").done("found")
        got = await ctx.approve("pay", PAY, id="b")
        await ctx.row("pay", got, id="b").done("paid")
        ctx.write("Bye.")
        return f"{len(again)}"

    store = nb.MemoryStore()
    run = loop.with_options(store=store).run()
    with pytest.raises(nb.HumanInputRequired):
        await run
    again_run = await nb.open_run(run.id, agent=loop, store=store, answers={"pay": True})
    assert (await again_run).text == "2"
    texts = [e.text for e in again_run.journal if isinstance(e, TextWritten)]
    assert texts == ["Hello. Thinking. ", "Bye."]
    shown = [e.name for e in again_run.journal if isinstance(e, StepFinished) and e.shown]
    assert shown == ["search", "pay"]


async def test_c743_a_text_has_a_limit_and_any_thread_may_write():
    """A hundred thousand pieces are one event; text beyond the limit is left out and the cut is marked."""

    def body(ctx: nb.ToolContext) -> None:
        for _ in range(100_000):
            ctx.write("x" * 159)
        ctx.write("y" * 1_000_000)
        ctx.write("z")
        threads = [threading.Thread(target=ctx.write, args=("late",)) for _ in range(3)]
        for thread in threads:
            thread.start()
            thread.join()

    run = await played(body)
    (written,) = [e.text for e in run.journal if isinstance(e, TextWritten)]
    assert written[:MAX_WRITTEN].strip("xy") == ""
    assert written[MAX_WRITTEN:].strip() == "… (more text was written, and is left out)"


async def test_c744_an_approval_returns_the_input_as_the_person_left_it():
    """Answers count by the name; the returned input is plain and typed as shown; nothing was run, so nothing is lost."""

    async def body(ctx: nb.ToolContext) -> Any:
        got = await ctx.approve("pay", PAY, message="Pay?", editable=True, schema=SCHEMA)
        got["more"] = [1]
        return got

    edited = nb.Restart(input={"amount": 7})
    run = await played(body, {"pay": edited})
    assert run.result.output == {"amount": 7, "more": [1]}
    asked = next(e for e in run.journal if isinstance(e, Interrupted))
    assert (asked.kind, asked.metadata, asked.editable) == ("approval", {"message": "Pay?"}, True)
    assert kinds(run).count("tool_started") == 1  # the body, which continues
    wrong = {"pay": nb.Restart(input={"amount": "much"})}
    with pytest.raises(nb.errors.InvalidAnswer, match="whole number"):
        await played(body, wrong)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (nb.Reject("too much"), "too much"),
        (nb.Reject(), None),
        (nb.Respond("not today"), "not today"),
    ],
)
async def test_c745_whatever_is_not_an_approval_raises_with_the_persons_words_alone(
    answer: Any, reason: str | None
):
    """A result in place of an approval approves nothing either; ``ctx.ask`` has the reason too."""

    async def body(ctx: nb.ToolContext) -> str:
        with pytest.raises(nb.Rejected) as rejected:
            await ctx.approve("pay", PAY)
        assert rejected.value.reason == reason
        with pytest.raises(nb.Rejected) as asked:
            await ctx.ask(nb.Confirm(message="Sure?"))
        assert asked.value.reason == "no"
        with pytest.raises(nb.Rejected) as called:
            await ctx.call(nb.tool(approval=True)(send))
        assert called.value.reason == "never"
        return "ok"

    given = {"pay": answer, "loop": nb.Reject("no"), "send": nb.Reject("never")}
    assert (await played(body, given)).result.text == "ok"


async def send() -> str:
    """Send."""
    raise AssertionError


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        ([nb.allow("*")], "asked"),
        ([nb.allow("p?y")], "asked"),
        ([nb.allow("pay")], "passes"),
        ([nb.allow("pay", when=lambda asked: asked.amount > 100)], "asked"),
        ([nb.allow("*"), nb.deny("pay", reason="closed")], "denied"),
        ([nb.review("pay", message="Really?")], "asked"),
    ],
)
async def test_c746_a_rule_lets_an_approval_pass_only_by_the_exact_name(policy: Any, outcome: str):
    """A wildcard was written without thinking of calls that other code gates."""
    heard: list[str] = []

    async def body(ctx: nb.ToolContext) -> Any:
        try:
            return await ctx.approve("pay", PAY, id="a")
        except ToolFailed as error:
            return str(error)

    def person(interrupt: nb.PendingInterrupt) -> bool:
        heard.append(interrupt.tool_name)
        return True

    run = await played(body, person, policy=policy)
    assert heard == (["pay"] if outcome == "asked" else [])
    assert ("closed" in run.result.text) == (outcome == "denied")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"name": ""}, "name of its tool"),
        ({"name": 3}, "name of its tool"),
        ({"name": "<b>\x1b[2J"}, "letters, digits"),
        ({"input": "text"}, "must be a JSON object"),
        ({"input": {"key": SecretStr("s3cr3t")}}, "contains a secret"),
        ({"input": {"x": object()}}, "is not JSON"),
        ({"input": {"amount": "five"}, "schema": SCHEMA}, "does not match the schema"),
        ({"id": ""}, "id= must be a string"),
        ({"id": 7}, "id= must be a string"),
        ({"message": None}, "message= must be a string"),
        ({"schema": "object"}, "schema= must be a type"),
        ({"schema": int}, "schema= must be a JSON Schema"),
        ({"schema": {"type": "array"}}, "cannot be used"),
        ({"schema": {"properties": {"k": {"type": "string", "writeOnly": True}}}}, "has a secret"),
        ({"schema": {"allOf": [{"$ref": "#"}] * 500}}, "too many rules"),
        ({"schema": {"properties": {str(n): {} for n in range(60_000)}}}, "over 50,000 parts"),
        ({"schema": NESTED}, "recursion"),
        ({"editable": ["amuont"]}, "no input 'amuont'.*Its inputs: "),
        ({"editable": ["amuont"], "schema": SCHEMA}, "no input 'amuont'.*Its inputs: "),
    ],
)
async def test_c747_an_approval_that_cannot_be_shown_is_refused_by_name(
    arguments: dict[str, Any], told: str
):
    """The error says what is wrong; nothing is stored, and no secret is in the error."""

    async def body(ctx: nb.ToolContext) -> str:
        given = {"name": "pay", "input": PAY, "id": "a"} | arguments
        with pytest.raises(ToolError, match=told) as refused:
            await ctx.approve(given.pop("name"), given.pop("input"), **given)
        return str(refused.value)

    run = await played(body)
    assert kinds(run) == ["tool_finished", "run_completed"]
    assert "s3cr3t" not in str(run.result.text)


class Odd:
    """A value whose own text fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Odd(),
        {1, 2},
        {"a": Odd()},
        "x" * 100_000_000,
        [["y" * 1_000] * 1_000] * 10,
        float("nan"),
    ],
    ids=["object", "odd", "set", "odd inside", "100 MB", "a long list", "nan"],
)
async def test_c748_a_row_shows_any_result_and_fails_no_run(value: Any):
    """What is not JSON, or too long, is shown by a text of bounded size."""

    async def body(ctx: nb.ToolContext) -> None:
        await ctx.row("get", {"value": value}, id="a").done(value)

    (row,) = [e for e in (await played(body)).journal if isinstance(e, StepFinished)]
    assert len(row.model_dump_json()) < 500_000


async def test_c749_one_call_is_one_row():
    """An approval's id, name and input lead to its row; a known call is ignored; equal ids of other calls are other rows."""

    async def body(ctx: nb.ToolContext) -> None:
        got = await ctx.approve("pay", PAY, id="a")
        row = ctx.row("pay", got, id="a")
        await row.done("paid")
        await row.failed("twice")
        await ctx.row("pay", got, id="a").done("again")
        await ctx.row("pay", {"amount": 6}, id="a").done("other")
        await ctx.row("<b>look\x1b[2J\u202e", {"<i>": "\x00"}, id="d\n").done("<script>\x07")
        await ctx.row("look", id="b").failed("gone")
        for wrong in ("", 3, "x" * 2_000):
            with pytest.raises(ToolError, match="id= must be"):
                ctx.row("look", id=wrong)  # type: ignore[arg-type]
        ctx.row("open", id="c")

    run = await played(body, [True])
    view = SingleRunView(run.id)
    for event in run.journal:
        view.apply(event)
    rows = [(i.name, i.state, i.result) for i in view.snapshot().items if i.type == "call"]
    assert rows == [
        ("pay", "done", "paid"),
        ("pay", "done", "other"),
        ("<b>look⟨U+001B⟩[2J⟨U+202E⟩", "done", "<script>⟨U+0007⟩"),
        ("look", "failed", "gone"),
        ("loop", "done", None),
    ]


@pytest.mark.parametrize("ends", ["fails", "is stopped"])
async def test_c749_open_rows_end_with_a_body_that_fails_or_is_stopped(ends: str):
    """The live card and the stored run show no call that runs for ever."""
    reached, store, live = asyncio.Event(), nb.MemoryStore(), SingleRunView("live")

    @nb.flow(store=store)
    async def loop(ctx: nb.ToolContext) -> None:
        await ctx.row("look", {"n": 1}, id="a").done(1)
        ctx.row("open", {"n": 2}, id="b")
        reached.set()
        if ends == "fails":
            raise ValueError("no")
        await asyncio.Event().wait()

    run = loop.with_options(attended=True, show=False).run()
    for event in run.subscribe(live.apply):
        live.apply(event)
    await reached.wait()
    if ends == "is stopped":
        await run.cancel()
    with pytest.raises(nb.NbagentError):
        await run
    rows = [(i.name, i.state) for i in live.snapshot().items if i.type == "call"]
    assert not {state for _, state in rows} & {"running", "preparing", "waiting"}, rows
    assert ("look", "done") in rows


async def test_c750_a_rule_on_a_call_that_nobody_gates_is_refused():
    """The body would run the call whatever the rule says; after ``ctx.approve`` the rule has decided."""

    async def gated(ctx: nb.ToolContext) -> str:
        got = await ctx.approve("pay", PAY, id="a")
        await ctx.row("pay", got, id="a").done(1)
        return "ok"

    async def ungated(ctx: nb.ToolContext) -> None:
        try:
            ctx.row("pay", PAY, id="a")
        except Misuse:  # other code may suppress it
            return

    rules = [nb.review("pay")]
    assert (await played(gated, [True], policy=rules)).result.text == "ok"
    for rule in (nb.review("p*"), nb.deny("pay")):
        with pytest.raises(Misuse, match="cannot apply to this call of 'pay'"):
            await played(ungated, policy=[rule])


def test_c751_the_sync_forms_serve_a_sync_loop():
    """They block the tool's own thread; the journal is that of the async forms."""

    @nb.flow
    def loop(ctx: nb.ToolContext) -> Any:
        ctx.write("Hi.")
        hidden = ctx.step_sync("think", lambda: {"a": [1]}, shown=False)
        hidden["a"].append(2)
        got = ctx.approve_sync("pay", PAY, id="a")
        ctx.row_sync("pay", got, id="a").done("paid")
        return hidden

    result = loop.with_options(answers=[True]).run_sync()
    assert result.output == {"a": [1, 2]}


async def test_c752_the_value_of_a_step_is_plain_json_that_may_be_changed():
    """Live, again in the body, and in ``ctx.steps``; a change never reaches the journal."""

    async def body(ctx: nb.ToolContext) -> Any:
        for _ in range(2):
            value = await ctx.step("make", make)
            value["list"].append({"x": 1})
            value["list"][-1].setdefault("y", [])
        ctx.steps["make"]["list"].append(3)
        return ctx.steps["make"]

    assert (await played(body)).result.output == {"list": []}


def make() -> dict[str, Any]:
    return {"list": []}


async def test_c843_after_its_end_a_body_shows_asks_and_does_nothing_more():
    """Its text is left out, and everything else ends the code that went on."""
    kept: list[Any] = []

    async def body(ctx: nb.ToolContext) -> str:
        kept.extend((ctx, ctx.row("open", id="a")))
        return "end"

    run = await played(body)
    ctx, row = kept
    before = len(run.journal)
    ctx.write("late")
    late = [
        lambda: ctx.approve("pay", PAY),
        lambda: ctx.row("look", id="b").done(1),
        lambda: ctx.step("work", make),
        lambda: row.done(1),
    ]
    for use in late:
        with pytest.raises(CallTakenOver):
            await use()
    assert len(run.journal) == before


async def test_c843_threads_use_the_sync_forms():
    """The others name them, and nothing is stored."""

    async def body(ctx: nb.ToolContext) -> str:
        def thread() -> str:
            got = ctx.approve_sync("pay", PAY, id="a")
            ctx.row_sync("pay", got, id="a").done("paid")
            return ctx.step_sync("work", lambda: "end")

        return await asyncio.to_thread(thread)

    run = await played(body, {"pay": True})
    assert drawn(run)[:3] == [("call", "pay"), ("call", "work"), ("call", "loop")]

    async def wrong(ctx: nb.ToolContext) -> None:
        await asyncio.to_thread(ctx.row, "look", id="a")

    with pytest.raises(Misuse, match=r"Use ctx\.row_sync"):
        await played(wrong)


@pytest.mark.parametrize("use", ["approve", "ask", "step", "call", "row"])
async def test_c694_a_loop_of_its_own_in_a_thread_is_told_to_use_the_sync_forms(use: str):
    """Its loop would wait for ever, as the answer arrives on the run's loop."""

    def body(ctx: nb.ToolContext) -> None:
        async def inner() -> Any:
            match use:
                case "approve":
                    await ctx.approve("pay", PAY)
                case "ask":
                    await ctx.ask("Name?")
                case "step":
                    await ctx.step("work", make)
                case "call":
                    await ctx.call(send)
                case _:
                    await ctx.row("look", id="a").done(1)

        asyncio.run(inner())

    with pytest.raises(Misuse, match=rf"{use}_sync"):
        await asyncio.wait_for(played(body, {"pay": True}), 30)


async def test_c749_a_large_approved_input_is_one_row_too():
    """The row's text is shortened, and still is that of the approval."""

    async def body(ctx: nb.ToolContext) -> None:
        got = await ctx.approve("pay", {"note": "x" * 1_000_000}, id="a")
        await ctx.row("pay", got, id="a").done("paid")

    assert drawn(await played(body, [True])) == [("call", "pay"), ("call", "loop")]


@pytest.mark.parametrize("how", ["timeout", "task"])
async def test_c698_an_approval_that_the_body_gave_up_ends_with_the_body(how: str):
    """The run does not wait for a person whose answer nobody awaits."""

    async def body(ctx: nb.ToolContext) -> str:
        if how == "timeout":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ctx.approve("pay", PAY, id="a"), 0.01)
        else:
            left = asyncio.create_task(ctx.approve("pay", PAY, id="a"))
            await asyncio.sleep(0.01)
            left.cancel()
        return "end"

    flow = nb.flow(name="loop")(body)
    run = flow.with_options(attended=True, show=False).run()
    assert (await asyncio.wait_for(run, 30)).text == "end"
    assert not run.interrupts


async def test_c698_an_approval_stays_open_if_the_body_suppresses_the_pause():
    """Step by step, the body cannot wait, and runs again with the answer."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("loop"), "done"]))

    @agent.tool
    async def loop(ctx: nb.ToolContext) -> str:
        try:
            return str(await ctx.approve("pay", PAY, id="a"))
        except BaseException:
            return "suppressed"

    paused = await agent.generate("go")
    (asked,) = paused.interrupts
    restart = nb.tool_restart(asked)
    done = await agent.generate(messages=paused.messages, tool_restarts=[restart])
    assert done.text == "done"
    assert "{'amount': 5}" in str(done.messages)


async def test_c844_of_twenty_answerers_over_card_shell_and_inbox_one_is_accepted():
    """Each question of a body's own loop takes one answer, whichever comes first."""
    done: list[int] = []
    store = nb.MemoryStore()

    @nb.flow(store=store, tools=["pay"])
    async def loop(ctx: nb.ToolContext) -> None:
        for n in range(3):
            try:
                await ctx.approve("pay", {"n": n}, id=str(n))
            except nb.Rejected:
                continue
            done.append(n)

    run = loop.with_options(attended=True, show=False).run()
    allowed = []
    for n in range(3):
        await run.settled()
        (given,) = await answered_by_twenty(run, loop, store)
        allowed += [n] if isinstance(given, nb.Restart) else []
    await run
    assert done == allowed
    assert len([e for e in run.journal if e.type == "resolved"]) == 3


@pytest.mark.parametrize("seed", range(40))
async def test_c753_a_live_card_ends_as_its_stored_run_is_drawn(seed: int):
    """Text, steps and rows of tasks that run beside each other, in random order, with a pause in between."""
    chance = random.Random(seed)

    @nb.flow
    async def loop(ctx: nb.ToolContext) -> None:
        async def one(n: int) -> None:
            order = random.Random(seed * 1000 + n)
            for m in range(4):
                kind, name = (
                    order.choice(["write", "step", "hidden", "row", "approve", "open"]),
                    f"{n}.{m}",
                )
                if kind == "write":
                    ctx.write(f"{name} text ")
                elif kind in ("step", "hidden"):
                    await ctx.step(name, lambda: asyncio.sleep(0, 1), shown=kind == "step")
                elif kind == "row":
                    row = ctx.row("look", {"n": name}, id=name)
                    await asyncio.sleep(0)
                    await row.done(name)
                elif kind == "open":
                    ctx.row("look", {"n": name}, id=name)
                else:
                    got = await ctx.approve("pay", {"n": name}, id=name)
                    row = ctx.row("pay", got, id=name)
                    if order.random() < 0.7:
                        await row.done("paid")

        await asyncio.gather(*(one(n) for n in range(3)))

    store, live = nb.MemoryStore(), SingleRunView("live")
    run = loop.with_options(attended=True, show=False, store=store).run()
    for event in run.subscribe(live.apply):
        live.apply(event)
    await run.settled()
    while run.status == "interrupted":
        run.restart(chance.choice(run.interrupts))
        await run.settled()
    await run
    replayed = SingleRunView("live")
    for event in run.journal:
        replayed.apply(event)
    assert items(live) == items(replayed)
    assert [i.key for i in live.snapshot().items] == [i.key for i in replayed.snapshot().items]


def test_c754_a_killed_process_leaves_a_question_that_names_the_rows(tmp_path: Path):
    """A kill inside the body asks what happened, and names what the body reported since its last step; an approval is kept."""
    script = tmp_path / "loop.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            import nbagent as nb

            @nb.flow(store=sys.argv[1])
            async def loop(ctx: nb.ToolContext) -> str:
                got = await ctx.approve("pay", {"amount": 5}, id="a")
                await ctx.step("think", lambda: 1, shown=False)
                await ctx.row("pay", got, id="a").done("paid")
                if "kill" in sys.argv:
                    os.kill(os.getpid(), signal.SIGKILL)
                return "end"

            if __name__ == "__main__":
                loop.with_options(id="r", answers=[True]).run_sync()
            """
        )
    )
    store = str(tmp_path / "runs.db")
    subprocess.run([sys.executable, script, store, "kill"], check=False)
    namespace: dict[str, Any] = {"__name__": "reopened"}
    before, sys.argv = sys.argv, ["loop.py", store]
    try:
        exec(script.read_text(), namespace)
    finally:
        sys.argv = before

    async def reopened() -> None:
        run = await nb.open_run(
            "r", agent=namespace["loop"], store=store, attended=True, show=False
        )
        await until(lambda: run.interrupts)
        (asked,) = run.interrupts
        assert asked.kind == "lost"
        assert "it reported these calls: pay" in str(asked.metadata)
        run.restart(asked)
        assert (await run).text == "end"
        kinds_of = [e.kind for e in run.journal if isinstance(e, Interrupted)]
        assert kinds_of == ["approval", "lost"]

    asyncio.run(reopened())
