"""Stored data can be read: later processes read every value again, whatever its source."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import BaseModel

import nbagent as nb
from nbagent.core.base.events import RunFailed, ToolFinished, dump, parse, storable_event
from nbagent.core.base.messages import MAX_DEPTH, storable

call = nb.ScriptedModel.call


def nested(levels: int, kind: str = "list") -> Any:
    """A value with this many levels."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind == "list" else {"k": value}
    return value


HOSTILE: dict[str, Any] = {
    "99 levels": nested(99),
    "198 levels": nested(198),
    "199 objects": nested(199, "dict"),
    "220 levels": nested(220),
    "900 levels": nested(900),
    "half a surrogate pair": "file-\udc80",
    "one inside": {"a": ["\ud800"]},
    "one in a key": {"\udfff": 1},
    "nan": math.nan,
    "infinity inside": [math.inf],
    "4,300 digits": 10**4299,
    "5,000 digits": 10**5000,
    "such inside": {"n": [-(10**5000)]},
    "zero bytes": "a\x00b",
    "a megabyte": "x" * 1_000_000,
}

Door = Callable[[Any], nb.Agent]


def agent_with(tool: Callable[..., Any], steps: Any = None, **options: Any) -> nb.Agent:
    agent = nb.Agent(nb.ScriptedModel(steps or [call("work"), "done"]))
    agent.tool(name="work", **options)(tool)
    return agent


def a_result(value: Any) -> nb.Agent:
    def work() -> Any:
        return value

    return agent_with(work)


def an_error(value: Any) -> nb.Agent:
    def work() -> None:
        raise RuntimeError(value if isinstance(value, str) else f"{value!r:.99}")

    return agent_with(work)


def printed(value: Any) -> nb.Agent:
    def work(ctx: nb.ToolContext) -> str:
        print(value if isinstance(value, str) else f"{value!r:.99}")
        ctx.progress(0.5, value if isinstance(value, str) else "half")
        return "printed"

    return agent_with(work)


def pieces(value: Any) -> nb.Agent:
    def work() -> Any:
        yield "first"
        yield value

    return agent_with(work)


def metadata(value: Any) -> nb.Agent:
    def work(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt({"why": value})
        return "done"

    return agent_with(work)


def state(value: Any) -> nb.Agent:
    def work(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Go on?"), state=value)
        return "done"

    return agent_with(work)


def a_step(value: Any) -> nb.Agent:
    async def work(ctx: nb.ToolContext) -> str:
        await ctx.step("compute", lambda: value)
        return "done"

    return agent_with(work)


def a_step_name(value: Any) -> nb.Agent:
    async def work(ctx: nb.ToolContext) -> str:
        await ctx.step(value if isinstance(value, str) else "name", lambda: 1)
        return "done"

    return agent_with(work)


def a_question(value: Any) -> nb.Agent:
    async def work(ctx: nb.ToolContext) -> str:
        return str(await ctx.ask(value if isinstance(value, str) else "Which?", value=None))

    return agent_with(work)


def arguments(value: Any) -> nb.Agent:
    async def work(x: Any) -> str:
        return "done"

    return agent_with(work, [call("work", x=value), "done"])


def agent_answering(value: Any) -> nb.Agent:
    return nb.Agent(nb.ScriptedModel([value if isinstance(value, str) else type(value).__name__]))


DOORS: dict[str, Door] = {
    f.__name__: f
    for f in (
        a_result,
        an_error,
        printed,
        pieces,
        metadata,
        state,
        a_step,
        a_step_name,
        a_question,
        arguments,
        agent_answering,
    )
}


async def check(agent: nb.Agent, path: Path, *answers: Callable[[nb.Run], Any]) -> None:
    """Run the agent and answer; another process must read all that was stored."""
    with nb.SQLiteStore(path) as store:
        run = agent.run("go", store=store, attended=True)
        await run.settled()
        for answer in answers:
            if run.status == "interrupted":
                with suppress(nb.errors.InvalidAnswer):
                    await answer(run)
                await run.settled()
        seen, last = [dump(event) for event in run.journal], run.journal[-1]
    with nb.SQLiteStore(path) as other:
        assert [dump(event) for event in other.read(run.id)] == seen
    assert [dump(parse(text)) for text in seen] == seen
    if isinstance(last, RunFailed):
        assert last.error != "StoreError", last.message
    json.dumps(run.messages, default=dict).encode()


BY_ANY_DOOR = [
    (door, what)
    for door in DOORS
    for what in HOSTILE
    if door != "arguments" or what not in ("nan", "infinity inside")  # JSON text cannot have these
]


@pytest.mark.parametrize(("door", "what"), BY_ANY_DOOR)
async def test_any_stored_input_can_be_read_again(door: str, what: str, tmp_path: Path) -> None:
    """Each hostile value from each source is stored, cut or refused; the run can always be opened."""
    agent = DOORS[door](HOSTILE[what])
    await check(agent, tmp_path / "runs.db", lambda run: run.restart(run.interrupts[0]))


@pytest.mark.parametrize("what", HOSTILE)
async def test_any_stored_answer_can_be_read_again(what: str, tmp_path: Path) -> None:
    """As output, changed input, data and reason of a rejection: stored or refused."""
    value = HOSTILE[what]
    text = value if isinstance(value, str) else "no"

    async def work(ctx: nb.ToolContext, x: Any = 0) -> Any:
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Go on?"))
        return "done"

    doors: list[Callable[[nb.Run], Any]] = [
        lambda run: run.respond(run.interrupts[0], value),
        lambda run: run.restart(run.interrupts[0], new_input={"x": value}),
        lambda run: run.restart(run.interrupts[0], data=value),
        lambda run: run.reject(run.interrupts[0], text),
        lambda run: run.resolve(run.interrupts[0], nb.Reject(reason=text), by=text),
    ]
    for n, door in enumerate(doors):
        await check(agent_with(work), tmp_path / f"{n}.db", door)


@pytest.mark.parametrize("what", HOSTILE)
async def test_any_stored_prompt_or_history_can_be_read_again(what: str, tmp_path: Path) -> None:
    """Each hostile value as a prompt."""
    value = HOSTILE[what]
    text = value if isinstance(value, str) else repr(type(value))
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        run = nb.Agent(nb.ScriptedModel(["done"])).run(text, store=store)
        await run
        assert [dump(e) for e in store.read(run.id)] == [dump(e) for e in run.journal]


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**4290, max_value=10**4310),
    st.floats(),
    st.text(st.characters(), max_size=5),
    st.text(st.characters(categories=["Cs", "Cc", "Lu"]), max_size=3),
    st.integers(90, 260).map(nested),
    st.integers(90, 260).map(lambda n: nested(n, "dict")),
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(value=values)
def test_a_storable_value_is_read_back_unchanged(value: Any) -> None:
    """A value is stored unchanged, except for invalid Unicode, or is refused with a reason."""
    try:
        stored = storable(value)
    except (ValueError, TypeError):
        return
    event = storable_event(ToolFinished(at=1.0, call_id="c", output=stored))
    read = parse(dump(event))
    assert isinstance(read, ToolFinished)
    assert read.output == stored


@given(value=values, text=st.text(st.characters(), max_size=9))
def test_any_stored_event_can_be_read(value: Any, text: str) -> None:
    """The last check before the store, whatever earlier checks accept."""
    event = ToolFinished(at=1.0, call_id=text, output=value, printed=text)
    try:
        same = storable_event(event)
    except ValueError:
        return
    assert dump(parse(dump(same))) == dump(same)


async def test_arguments_nested_too_deep_are_refused_to_the_model() -> None:
    """The call does not run, the run continues, and the reason names the limit."""
    agent = arguments(nested(150))
    run = agent.run("go")
    assert (await run).text == "done"
    (told,) = run.calls["work"]
    assert told.failed
    assert str(MAX_DEPTH) in (told.error or "")


class Deep(BaseModel):
    """A final answer that may be as deep as the model likes."""

    x: Any


async def test_a_final_answer_nested_too_deep_fails_clearly(tmp_path: Path) -> None:
    """The run fails with a ``ModelError`` and can be read."""
    text = json.dumps({"x": nested(150)})
    agent = nb.Agent(nb.ScriptedModel([text]), output_type=Deep, output_retries=0)
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        run = agent.run("go", store=store)
        with pytest.raises(nb.errors.ModelError, match="nested more"):
            await run
        assert store.read(run.id)[-1].type == "run_failed"
