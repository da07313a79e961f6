"""Tools that record every act, by branch of the run and by the call's number."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import nbagent as nb
from nbagent.core.run.run import session_of
from nbagent.core.tools.tool import Tool

EDIT = 5000
"""The amount that an edit adds to a call's number, which is unique at every depth."""

FREE = ("plain", "plain_sync", "flaky", "slow", "stream", "stream_sync", "later")
"""Tools that act without being asked about."""
GATED = ("gate", "gate_sync", "sly", "twice", "timed", "late", "pay", "last")
"""Tools that act once a person has approved them."""
REVIEWED = ("reviewed", "doubtful")
"""Tools that a rule asks about."""
NEVER = ("denied", "guarded", "ask")
"""Tools that never act."""
NEEDED = {"asks": 2, "asks_sync": 1}
"""Tools that ask in their middle, and the answers that they need before they act."""
OWN = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
"""The schema of a call that a foreign loop runs itself."""
IN_THREADS = ("plain_sync", "stream_sync", "gate_sync", "sly", "timed", "reviewed", "asks_sync")
"""Tools whose bodies run in threads."""
FLAT = [*FREE, *GATED, *REVIEWED, *NEVER, *NEEDED, "own"]
NESTS = ("inner", "calls")
"""Callers of tools: an agent, and a body, which also runs agents."""


SWALLOWED = "all went well"
"""The result of hostile middleware for any call."""


class Swallow:
    """Hostile middleware: tries twice, then reports success."""

    async def __call__(self, c: nb.ToolCall, nxt: Any) -> Any:
        for _ in range(2):
            try:
                return await nxt(c)
            except asyncio.CancelledError:
                raise
            except BaseException:
                await asyncio.sleep(0)
        return SWALLOWED


class Insist:
    """Middleware that calls ``next`` twice and returns the second result."""

    async def __call__(self, c: nb.ToolCall, nxt: Any) -> Any:
        await nxt(c)
        return await nxt(c)


class Drift:
    """Middleware that changes a reviewed call's input on its first two passes, then keeps it."""

    def __init__(self) -> None:
        self._ways: dict[int, int] = {}

    async def __call__(self, c: nb.ToolCall, nxt: Any) -> Any:
        """Add to the call's number."""
        if c.tool_name in REVIEWED:
            n = c.input.n % EDIT
            self._ways[n] = min(self._ways.get(n, 0) + 1, 2)
            c.input = c.input.model_copy(update={"n": n + EDIT * (self._ways[n] + 1)})
        return await nxt(c)


def middleware(kind: str) -> list[Any]:
    """The middleware of this kind."""
    made: dict[str, list[Any]] = {
        "none": [],
        "usual": [
            nb.ToolErrorsToText(),
            nb.Retry(2),
            nb.Timeout(100_000),  # more than the looks of all outages put the clock forward
        ],
        "hostile": [nb.Retry(2), Swallow(), Insist()],
        "drifting": [Drift()],
    }
    return made[kind]


MIDDLEWARE = ["none", "usual", "hostile", "drifting"]


def raises(typed: Any) -> bool:
    """A rule's condition that raises."""
    raise LookupError(typed)


RULES = [
    nb.deny("guarded", when=raises),
    nb.deny("denied"),
    nb.allow("doubtful", when=raises),
    nb.review("reviewed"),
    nb.allow("*"),
]


@dataclass(eq=False)
class Seat:
    """One handle on one branch of a run, with its own agent, as in another process."""

    branch: int = 0
    run: Any = None
    journal: Any = None
    """The run's journal, as this handle has read it."""
    remembered: set[tuple[int, str]] = field(default_factory=set)
    """The tools that need no approval in any run: the agent's depth and the tool's name."""

    checked: int = 0
    """The number of events that this handle had read when its loop last asked for the time, as for a budget."""

    @property
    def position(self) -> int:
        """The number of events that this handle has read."""
        return 0 if self.journal is None else self.journal.state.position

    def notices(self) -> None:
        """Apply due deadlines, as code that waits for the run does."""
        session_of(self.run).when_settled()

    def goes_on(self) -> None:
        """Drive the run, also beside another handle, as two processes may."""
        session_of(self.run).drive()


@dataclass(frozen=True)
class Act:
    """A side effect that cannot be undone."""

    kind: str
    input: int
    depth: int
    position: int
    """The number of events that the acting handle had read."""
    seat: Seat

    @property
    def n(self) -> int:
        """The call's number."""
        return self.input % EDIT


class World:
    """Tools, their acts, and the clock that acting moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.acts: dict[int, list[Act]] = {}
        """Acts by branch."""
        self.worked: dict[int, float] = {}
        """Seconds of work, by branch."""
        self.slow: dict[tuple[int, int], asyncio.Future[str]] = {}
        """The futures of slow calls, by branch and number."""
        self.tokens: dict[str, tuple[int, int]] = {}
        """The branch and the call's number of each outside token."""
        self.at_door: dict[tuple[int, int], threading.Event] | None = None
        """Threads of synchronous tools that wait to be let in, in the same order in every run; None if
        threads need not wait."""
        self._tried: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    def agent(
        self, seat: Seat, model: Callable[[int], Any], *, depth: int = 0, **options: Any
    ) -> nb.Agent:
        """An agent with one tool of every kind and, down to depth 2, an inner agent like itself.

        ``options`` are the outermost agent's; ``options["inner"]`` are the inner agents'.
        """
        inner = options.pop("inner", {})
        name = "inner" if depth else "outer"
        agent = nb.Agent(model(depth), name=name, policy=RULES, **options)
        act, kit = _Acting(self, seat, depth), _Kit(agent)
        for add in _KINDS:
            add(kit, act)
        within = None
        if depth < 2:
            within = self.agent(seat, model, depth=depth + 1, inner=inner, **inner)
            agent.add(within.as_tool(name="inner"))
        _add_calling(kit, act, within)
        return agent

    def open_slow(self, branch: int) -> list[int]:
        """Slow calls that wait for the test."""
        return [n for (b, n), f in self.slow.items() if b == branch and not f.done()]

    def works(self, branch: int, seconds: float) -> None:
        """Let time pass in which this branch works."""
        with self._lock:
            self.now += seconds
            self.worked[branch] = self.worked.get(branch, 0.0) + seconds

    def enter(self, branch: int, n: int) -> None:
        """Wait until the test lets this thread in."""
        if self.at_door is not None:
            opened = self.at_door[branch, n] = threading.Event()
            opened.wait(30)

    def let_in(self) -> bool:
        """Let in the next waiting thread; False if none waits."""
        if not self.at_door:
            return False
        self.at_door.pop(min(self.at_door)).set()
        return True

    def fails_first(self, branch: int, n: int) -> None:
        """Raise at the first attempt."""
        if (branch, n) not in self._tried:
            self._tried.add((branch, n))
            raise OSError("line is down")


ASK = nb.interrupt_tool("ask", output=str)
MADE: dict[str, Tool[..., Any]] = {}
"""Each tool as first made, so that its schema is computed once and not for each agent."""


class _Kit:
    """Adds tools to an agent."""

    def __init__(self, agent: nb.Agent) -> None:
        self.agent = agent
        self.made: dict[str, Any] = {"ask": ASK}
        """The agent's tools by name."""

    def tool(self, fn: Any, *, final: bool = False) -> None:
        """Add a tool with this body."""
        if fn.__name__ not in MADE:
            made = MADE[fn.__name__] = nb.tool(final=final)(fn)
            assert made.spec.input_schema
        made = copy.copy(MADE[fn.__name__])
        made.fn = fn
        self.agent.add(made)
        self.made[fn.__name__] = made

    def final(self, fn: Any) -> None:
        """Add a tool whose answer ends the run."""
        self.tool(fn, final=True)


class _Acting:
    """The acts of one agent's tools."""

    def __init__(self, world: World, seat: Seat, depth: int) -> None:
        self.world, self.seat, self.depth = world, seat, depth

    def enter(self, n: int) -> None:
        """Start a body in a thread."""
        self.world.enter(self.seat.branch, n % EDIT)

    def __call__(self, kind: str, n: int) -> str:
        """Record an act that takes three seconds."""
        act = Act(kind, n, self.depth, self.seat.position, self.seat)
        self.world.acts.setdefault(self.seat.branch, []).append(act)
        self.world.works(self.seat.branch, 3)
        return f"did {n}"


def _add_free(kit: _Kit, act: _Acting) -> None:
    @kit.tool
    async def plain(n: int) -> str:
        return act("plain", n)

    @kit.tool
    def plain_sync(n: int) -> str:
        act.enter(n)
        return act("plain_sync", n)

    @kit.tool
    async def flaky(n: int) -> str:
        act.world.fails_first(act.seat.branch, n)
        return act("flaky", n)

    @kit.tool
    async def stream(n: int):
        yield "did "
        await asyncio.sleep(0)
        act("stream", n)
        yield str(n)

    @kit.tool
    def stream_sync(n: int) -> Iterator[str]:
        act.enter(n)
        yield "did "
        act("stream_sync", n)
        yield str(n)


def _add_slow(kit: _Kit, act: _Acting) -> None:
    @kit.tool
    async def slow(n: int) -> str:
        future = asyncio.get_running_loop().create_future()
        act.world.slow[act.seat.branch, n] = future
        told = await future
        act("slow", n)
        return told


def _add_gated(kit: _Kit, act: _Acting) -> None:
    @kit.tool
    async def gate(n: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt({"n": n}, state={"n": n})
        return act("gate", n)

    @kit.tool
    def gate_sync(n: int, ctx: nb.ToolContext) -> str:
        act.enter(n)
        if not ctx.resumed:
            raise nb.Interrupt({"n": n})
        return act("gate_sync", n)

    @kit.tool
    def sly(n: int, ctx: nb.ToolContext) -> str:
        """Swallow its own pause: a pause is sticky."""
        act.enter(n)
        try:
            if not ctx.resumed:
                ctx.interrupt({"n": n})
        except BaseException:
            return "as if nobody had to be asked"
        return act("sly", n)


def _add_rounds(kit: _Kit, act: _Acting) -> None:
    @kit.tool
    async def twice(n: int, ctx: nb.ToolContext) -> str:
        """Pause in two rounds."""
        rounds = ctx.state or 0
        if rounds < 2:
            ctx.interrupt({"round": rounds}, state=rounds + 1)
        return act("twice", n)

    @kit.final
    async def last(n: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt({"n": n})
        return act("last", n)


def _add_timed(kit: _Kit, act: _Acting) -> None:
    @kit.tool
    def timed(n: int, ctx: nb.ToolContext) -> str:
        act.enter(n)
        if not ctx.resumed:
            default = nb.Respond(output="by default") if n % 2 else "reject"
            ctx.interrupt({"n": n}, expires_in=100, on_expire=default)
        return act("timed", n)

    @kit.tool
    async def late(n: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt({"n": n}, expires_in=100, on_expire="fail")
        return act("late", n)

    @kit.tool
    async def pay(n: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            act.world.tokens[ctx.external_token] = (act.seat.branch, n)
            ctx.interrupt({"n": n}, external=True)
        return act("pay", n)


def _add_reviewed(kit: _Kit, act: _Acting) -> None:
    kit.agent.add(ASK)

    @kit.tool
    def reviewed(n: int) -> str:
        act.enter(n)
        return act("reviewed", n)

    @kit.tool
    async def doubtful(n: int) -> str:
        return act("doubtful", n)

    @kit.tool
    def denied(n: int) -> str:
        return act("denied", n)

    @kit.tool
    async def guarded(n: int) -> str:
        return act("guarded", n)


def _add_asking(kit: _Kit, act: _Acting) -> None:
    @kit.tool
    async def asks(n: int, ctx: nb.ToolContext) -> str:
        one, two = await asyncio.gather(ctx.ask(f"{n} one?"), ctx.ask(f"{n} two?"))
        await ctx.step("act", lambda: act("asks", n))
        return f"{one} | {two} | {await ctx.ask(f'{n} three?')}"

    @kit.tool
    def asks_sync(n: int, ctx: nb.ToolContext) -> str:
        act.enter(n)
        one = ctx.ask_sync(f"{n} one?")
        ctx.step_sync("act", lambda: act("asks_sync", n))
        return f"{one} | {ctx.ask_sync(f'{n} two?')}"


def _add_later(kit: _Kit, act: _Acting) -> None:
    @kit.tool
    async def later(n: int, ctx: nb.ToolContext) -> str:
        """Give an interim result, and wait outside of the turn for the final one."""
        act.world.tokens[ctx.external_token] = (act.seat.branch, n)
        return ctx.later(act("later", n), expires_in=100 if n % 2 else None)  # type: ignore[no-any-return]


async def foreign(act: _Acting, n: int, ctx: nb.ToolContext) -> str:
    """A turn of a foreign loop: it writes, asks, and acts in code that nbagent does not know, in steps without a row."""
    thought = await ctx.step(f"think {n}", lambda: {"n": n}, shown=False)
    ctx.write(f"Now {n}. ")
    given = await ctx.approve("own", thought, id=str(n), editable=True, schema=OWN)
    told = await ctx.step(f"own {n}", lambda: act("own", given["n"]), shown=False)
    await ctx.row("own", given, id=str(n)).done(told)
    return str(told)


def _add_foreign(kit: _Kit, act: _Acting) -> None:
    @kit.tool
    async def own(n: int, ctx: nb.ToolContext) -> str:
        return await foreign(act, n, ctx)


def _add_calling(kit: _Kit, act: _Acting, within: nb.Agent | None) -> None:
    @kit.tool
    async def calls(n: int, prompt: str, ctx: nb.ToolContext) -> str:
        """Act once, then call and run what the prompt lists, those of one turn at once; what each gave."""

        async def one(kind: str, what: Any) -> str:
            try:
                if kind == "inner":
                    assert within is not None
                    return (await within.run(json.dumps(what))).text
                if kind == "own":
                    return await foreign(act, what, ctx)
                return str(await ctx.call(kit.made[kind], **input_of(kind, what)))
            except nb.NbagentError as error:
                return f"failed: {error}"

        await ctx.step("act", lambda: act("calls", n))
        told: list[str] = []
        for turn in json.loads(prompt):
            told += await asyncio.gather(*(one(kind, what) for kind, what in turn))
        return json.dumps(told)


def input_of(kind: str, what: Any) -> dict[str, Any]:
    """The input of a call of ``[kind, number]``, with the turns of a nest."""
    if kind == "inner":
        return {"prompt": json.dumps(what)}
    if kind == "calls":
        return {"n": what[0], "prompt": json.dumps(what[1])}
    return {"n": what}


_KINDS = (
    _add_later,
    _add_free,
    _add_slow,
    _add_gated,
    _add_rounds,
    _add_timed,
    _add_reviewed,
    _add_asking,
    _add_foreign,
)
