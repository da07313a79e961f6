"""Agents of other frameworks with scripted models, run by ``nb.watch`` in a process of their own.

    python -m tests.integration.others_child CASE …       prints the cases' outcomes as JSON
    python -m tests.integration.others_child kills 120    kills processes after random events and inside tools

``install_others.py`` installs the frameworks, and ``test_others.py`` runs this with them on the path.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import nbagent as nb
from nbagent.core.base.events import Event, Interrupted, Resolved
from nbagent.notebook.view.view import SingleRunView

EFFECTS = "NBAGENT_TEST_EFFECTS"
"""The environment variable with the file that tools write their effects to."""
WORKERS = 6
"""Processes that kill others at the same time; each mostly waits."""
KILL_IN = "NBAGENT_TEST_KILL_IN"
"""The environment variable with the effect at which the process is killed."""
LOG: list[str] = []
AGAIN: list[tuple[str, str, dict[str, Any]]] = []
"""The ids, names and inputs of the calls in the models' second answer, if there is one."""
BREAKS: list[str] = []
"""What raises once: a model after the calls' results, or a tool, by its effect."""
WRITTEN: list[Any] = []
"""The input that a model writes in place of the first payment's, if there is one."""


def breaks(name: str) -> None:
    """Raise if this is to fail now."""
    if name in BREAKS:
        BREAKS.remove(name)
        raise RuntimeError(f"{name} is down")


def effect(name: str) -> None:
    """An effect of a tool."""
    breaks(name)
    LOG.append(name)
    if EFFECTS in os.environ:
        with Path(os.environ[EFFECTS]).open("a") as file:
            file.write(f"{name}\n")
        if os.environ.get(KILL_IN) == name:
            os.kill(os.getpid(), signal.SIGKILL)


def pydantic_ai_agent():
    from pydantic_ai import Agent, DeferredToolRequests
    from pydantic_ai.messages import ToolReturnPart
    from pydantic_ai.models.function import DeltaToolCall, FunctionModel

    async def stream(messages, info):
        returns = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
        if returns:
            breaks("model")
        else:
            yield "I will "
            yield "pay."
            yield {1: DeltaToolCall("look", '{"path": "a"}', tool_call_id="c0")}
            yield {2: DeltaToolCall("pay", '{"amount": 5}', tool_call_id="c1")}
            yield {3: DeltaToolCall("pay", '{"amount": 6}', tool_call_id="c2")}
        if len(returns) == 3 and AGAIN:
            for n, (id_, name, given) in enumerate(AGAIN):
                yield {n: DeltaToolCall(name, json.dumps(given), tool_call_id=id_)}
        elif returns:
            yield "Results: " + ", ".join(str(p.content) for p in returns)

    agent = Agent(
        FunctionModel(stream_function=stream), output_type=[str, DeferredToolRequests], name="payer"
    )

    @agent.tool_plain
    def look(path: str) -> int:
        effect("look")
        return 3

    @agent.tool_plain(requires_approval=True)
    def pay(amount: int) -> str:
        effect(f"pay {amount}")
        return f"paid {amount}"

    return agent


def openai_agent():
    from agents import Agent, Model, ModelResponse, Usage, function_tool, set_tracing_disabled
    from openai.types.responses import (
        Response,
        ResponseCompletedEvent,
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
        ResponseTextDeltaEvent,
    )

    set_tracing_disabled(True)

    class Fake(Model):
        def _out(self, input):
            outs = (
                [
                    i
                    for i in input
                    if isinstance(i, dict) and i.get("type") == "function_call_output"
                ]
                if isinstance(input, list)
                else []
            )

            def msg(t):
                return ResponseOutputMessage(
                    id="m",
                    content=[
                        ResponseOutputText(annotations=[], text=t, type="output_text", logprobs=[])
                    ],
                    role="assistant",
                    status="completed",
                    type="message",
                )

            call = lambda i, n, a: ResponseFunctionToolCall(
                arguments=a, call_id=i, name=n, type="function_call", id="f" + i
            )
            if outs:
                breaks("model")
            if len(outs) == 3 and AGAIN:
                return "", [call(id_, name, json.dumps(given)) for id_, name, given in AGAIN]
            if not outs:
                return "I will pay.", [
                    msg("I will pay."),
                    call("c0", "look", '{"path":"a"}'),
                    call("c1", "pay", '{"amount":5}'),
                    call("c2", "pay", '{"amount":6}'),
                ]
            t = "Results: " + ", ".join(str(o["output"]) for o in outs)
            return t, [msg(t)]

        async def get_response(self, system_instructions, input, *a, **k):
            return ModelResponse(output=self._out(input)[1], usage=Usage(), response_id="r")

        async def stream_response(self, system_instructions, input, *a, **k):
            t, out = self._out(input)
            for p in (t[:5], t[5:]):
                yield ResponseTextDeltaEvent(
                    content_index=0,
                    delta=p,
                    item_id="m",
                    output_index=0,
                    type="response.output_text.delta",
                    sequence_number=0,
                    logprobs=[],
                )
            yield ResponseCompletedEvent(
                type="response.completed",
                sequence_number=1,
                response=Response(
                    id="r",
                    created_at=0,
                    model="m",
                    object="response",
                    output=out,
                    parallel_tool_calls=True,
                    tool_choice="auto",
                    tools=[],
                ),
            )

    @function_tool
    def look(path: str) -> int:
        effect("look")
        return 3

    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        effect(f"pay {amount}")
        return f"paid {amount}"

    return Agent(name="Payer agent", model=Fake(), tools=[look, pay])


def model():
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

    class Fake(BaseChatModel):
        @property
        def _llm_type(self):
            return "fake"

        def bind_tools(self, tools, **k):
            return self

        def _said(self, messages):
            outs = [m for m in messages if isinstance(m, ToolMessage)]
            call = lambda i, n, a: {"name": n, "args": a, "id": i, "type": "tool_call"}
            if len(outs) == 3 and AGAIN:
                return AIMessage("", id="m3", tool_calls=[call(*each) for each in AGAIN])
            if not outs:
                return AIMessage(
                    "I will pay.",
                    id="m1",
                    tool_calls=[
                        call("c0", "look", {"path": "a"}),
                        call("c1", "pay", WRITTEN[0] if WRITTEN else {"amount": 5}),
                        call("c2", "pay", {"amount": 6}),
                    ],
                )
            return AIMessage("Results: " + ", ".join(str(o.content) for o in outs), id="m2")

        def _generate(self, messages, stop=None, run_manager=None, **k):
            return ChatResult(generations=[ChatGeneration(message=self._said(messages))])

        def _stream(self, messages, stop=None, run_manager=None, **k):
            said = self._said(messages)
            for p in (said.content[:5], said.content[5:]):
                yield ChatGenerationChunk(message=AIMessageChunk(p, id=said.id))
            import json

            if said.tool_calls:
                yield ChatGenerationChunk(
                    message=AIMessageChunk(
                        "",
                        id=said.id,
                        tool_call_chunks=[
                            {
                                "name": c["name"],
                                "args": json.dumps(c["args"]),
                                "id": c["id"],
                                "index": n,
                                "type": "tool_call_chunk",
                            }
                            for n, c in enumerate(said.tool_calls)
                        ],
                    )
                )

    return Fake()


def look(path: str) -> int:
    """Look."""
    effect("look")
    return 3


def pay(amount: int) -> str:
    """Pay."""
    effect(f"pay {amount}")
    return f"paid {amount}"


def langgraph_agent(mode="batched", saver=None, inner=False, allowed=True, **options):
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langgraph.checkpoint.memory import InMemorySaver

    return create_agent(
        model(),
        tools=[look, pay],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": allowed}, interrupt_mode=mode)],
        checkpointer=None if inner else saver or InMemorySaver(),
        name="payer",
        **options,
    )


def langgraph_nested(mode="batched"):
    """A graph with the agent as its subgraph."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph

    built = StateGraph(MessagesState)
    built.add_node("inner", langgraph_agent(mode, inner=True))
    built.add_edge(START, "inner")
    return built.compile(checkpointer=InMemorySaver(), name="outer")


def langgraph_tool():
    """An agent that invokes the paying agent in its tool."""
    from langchain.agents import create_agent
    from langgraph.checkpoint.memory import InMemorySaver

    inner = langgraph_agent(inner=True)

    class Boss(type(model())):
        def _said(self, messages):
            said = super()._said(messages)
            asked = {"name": "ask", "args": {"about": "pay"}, "id": "b0", "type": "tool_call"}
            said.tool_calls = said.tool_calls and [asked]
            return said

    def ask(about: str) -> str:
        """Ask the paying agent."""
        said = inner.invoke({"messages": [{"role": "user", "content": about}]})
        return said["messages"][-1].text

    return create_agent(Boss(), tools=[ask], checkpointer=InMemorySaver(), name="boss")


def openai_nested():
    """An agent that has the paying agent as its tool, and hands over to another."""
    from agents import Agent
    from openai.types.responses import ResponseFunctionToolCall

    banker = openai_agent()

    class Boss(type(banker.model)):
        def _out(self, input):
            text, out = super()._out(input)
            if text != "I will pay.":
                return text, out
            asked = {"name": "ask_banker", "arguments": '{"input":"pay"}', "call_id": "c9"}
            call = ResponseFunctionToolCall(type="function_call", id="f9", **asked)
            return text, [*out[:2], call]

    inner = banker.as_tool("ask_banker", "The banker")
    other = Agent(name="other", tools=[])
    boss = Agent(name="boss", model=Boss(), tools=[banker.tools[0], inner], handoffs=[other])
    other.handoffs.append(boss)  # in a circle
    return boss


def graph(*nodes, saver=None, **options):
    """A graph whose nodes run one after the other."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, StateGraph
    from typing_extensions import TypedDict

    state = TypedDict("state", {"said": list})
    built = StateGraph(state)
    before = START
    for node in nodes:
        built.add_node(node.__name__, node)
        built.add_edge(before, node.__name__)
        before = node.__name__
    return built.compile(checkpointer=saver or InMemorySaver(), **options)


AGENTS = {
    "pydantic_ai": pydantic_ai_agent,
    "openai_agents": openai_agent,
    "langgraph": langgraph_agent,
    "langgraph_per_call": lambda: langgraph_agent("per_call"),
}
NESTED = {
    "langgraph": langgraph_nested,
    "langgraph_per_call": lambda: langgraph_nested("per_call"),
    "langgraph_tool": langgraph_tool,
    "openai_agents": openai_nested,
}


def drawn(run: nb.Run) -> list[list[Any]]:
    """The rows and texts of the stored run."""
    view = SingleRunView(run.id)
    for event in run.journal:
        view.apply(event)
    return [
        [i.name, i.state, i.brief, i.result] if i.type == "call" else ["".join(i.blocks)]
        for i in view.snapshot().items
    ]


def asked(run: nb.Run) -> list[str]:
    return [e.kind for e in run.journal if isinstance(e, Interrupted)]


async def told_by(run: nb.Run) -> str:
    """The text or the error of a run."""
    try:
        return (await run).text
    except nb.NbagentError as error:
        return str(error)


async def whole(kind: str) -> Any:
    """A run with an edited, or approved, and a rejected call."""
    edited = nb.Restart() if kind == "openai_agents" else nb.Restart(input={"amount": 7})
    flow = nb.watch(AGENTS[kind]())
    run = flow.with_options(answers={"pay": [edited, nb.Reject("too much")]}).run("go")
    result = await run
    left = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    effects = [*LOG]
    LOG.clear()
    return {"text": result.text, "effects": effects, "drawn": drawn(run), "tasks": len(left)}


async def nested(kind: str) -> Any:
    """Calls and pauses of a subgraph, or of an agent that is a tool; then with a rule on its tool."""
    edited = nb.Restart() if kind == "openai_agents" else nb.Restart(input={"amount": 7})
    flow = nb.watch(NESTED[kind]())
    run = flow.with_options(answers={"pay": [edited, nb.Reject("too much")]}).run("go")
    await run
    effects = [*LOG]
    LOG.clear()
    if kind == "langgraph_tool":  # whose inner tools are not known before
        return {"effects": effects, "drawn": drawn(run), "denied": "closed", "ran": []}
    flow.policy = [nb.deny("pay", reason="closed")]
    denied = (await flow.run("go")).text
    ran = [*LOG]
    LOG.clear()
    return {"effects": effects, "drawn": drawn(run), "denied": denied, "ran": ran}


async def again(kind: str) -> Any:
    """The model's second answer has the id of a rejected call, for another call, the same call, or one without a gate."""
    found = []
    for name, input_ in (("pay", {"amount": 8}), ("pay", {"amount": 6}), ("look", {"path": "b"})):
        AGAIN[:] = [("c2", name, input_)]
        flow = nb.watch(AGENTS[kind]())
        given = {"pay": [nb.Restart(), nb.Reject("no"), nb.Restart()]}
        run = flow.with_options(answers=given).run("go")
        await run
        found.append([[*LOG], [d for d in drawn(run) if d[0] in ("look", "pay")]])
        LOG.clear()
    AGAIN[:] = [("c1", "pay", {"amount": 8}), ("c1", "pay", {"amount": 9})]
    told = await told_by(nb.watch(AGENTS[kind]()).with_options(answers={"pay": True}).run("go"))
    found.append([[*LOG], told])
    AGAIN.clear()
    LOG.clear()
    return found


async def one_by_one(kind: str) -> Any:
    """Nobody is there: it raises at once. Wrong answers change nothing; answers are given one by one, in any order."""
    store = nb.MemoryStore()
    flow = nb.watch(AGENTS[kind](), store=store)
    run = flow.with_options(show=False).run("go")
    try:
        await run
    except nb.HumanInputRequired as error:
        open_questions = len(error.interrupts)
    run = await nb.open_run(run.id, agent=flow, store=store, attended=True, show=False)
    await run.settled()
    wrong = 0
    for _ in range(20):
        try:
            run.restart(run.interrupts[0], new_input={"amount": "much"})
        except nb.errors.InvalidAnswer:
            wrong += 1
    run.restart(run.interrupts[1])
    await run.settled()
    before = [*LOG]
    run.restart(run.interrupts[0])
    result = await run
    effects = [*LOG]
    LOG.clear()
    return {
        "open": open_questions,
        "wrong": wrong,
        "paid before all answers": [e for e in before if "pay" in e],
        "paid": sorted(e for e in effects if "pay" in e),
        "text": result.text,
        "asked": asked(run),
    }


async def recorded(kind: str) -> Any:
    """A recorded state of the SDK with three pauses, one of them inside an agent that is a tool, is answered."""
    from agents import Agent, function_tool

    from nbagent.others.legs import Ask, Leg, Progress
    from nbagent.others.openai_agents import Adapter
    from nbagent.others.watch import _answer
    from tests.shared import CASES

    path = CASES / "others" / "openai_agents_native.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text())

    def look(path: str) -> int:
        """Look."""
        effect("look")
        return 3

    def transfer(to: str, amount: float) -> str:
        """Send money."""
        effect(f"{to} {amount:g}")
        return f"sent {amount:g} to {to}"

    model, send = openai_agent().model, function_tool(transfer, needs_approval=True)
    banker = Agent(name="banker", model=model, tools=[send])
    inner = banker.as_tool("ask_banker", "The banker")
    boss = Agent(name="boss", model=model, tools=[function_tool(look), send, inner])

    @nb.flow(tools=["transfer"])
    async def continued(ctx: nb.ToolContext) -> Any:
        adapter, progress, asks, answers = Adapter(boss, {}), Progress(ctx), [], {}
        for one in (each["raw"] for each in found["interruptions"]):
            given = json.loads(one["arguments"])
            ask = Ask(one["call_id"], "approval", one["name"], given, call=one["call_id"])
            asks.append(ask)
            answers[ask.id] = await _answer(ctx, ask)
            progress.decide(ask, answers[ask.id])
        before = Leg(**Leg.paused(asks, found["state"]))
        return await adapter.leg("pay", before, answers, progress)

    given = {"transfer": [True, nb.Reject("no"), True]}
    run = continued.with_options(answers=given).run()
    output = (await run).output["output"]
    effects = [*LOG]
    LOG.clear()
    return {"output": output, "effects": effects, "drawn": drawn(run)}


async def failed(kind: str) -> Any:
    """The model fails after the calls have ended, or a call fails after another has ended; the run is retried."""
    found = []
    for broken, more in (("model", []), ("pay 6", [True]), ("pay 6", [False])):
        if broken != "model" and kind == "openai_agents":
            continue  # the SDK tells the model of a tool's error
        BREAKS.append(broken)
        flow = nb.watch(AGENTS[kind](), name="agent")
        given = {"pay": [True, True], "agent": more}
        run = flow.with_options(answers=given).run("go")
        told = [await told_by(run), await told_by(run := run.retry())]
        questions = [str(e.metadata) for e in run.journal if isinstance(e, Interrupted)]
        found.append({"told": told, "effects": sorted(LOG), "questions": questions[2:]})
        LOG.clear()
    return found


async def decisions(kind: str) -> Any:
    """Answers that the framework does not take, and inputs that do not fit the tool's schema."""
    found: dict[str, Any] = {}
    for name, allowed, answer in (
        ("respond", ["approve", "respond"], nb.Reject()),
        ("none", ["approve", "edit"], nb.Reject("too much")),
    ):
        agent = langgraph_agent(allowed={"allowed_decisions": allowed})
        run = nb.watch(agent).with_options(answers={"pay": [True, answer]}).run("go")
        try:
            found[name] = (await run).text
        except nb.NbagentError as error:
            state = await agent.aget_state({"configurable": {"thread_id": run.id}})
            found[name] = f"{error}, {len(state.interrupts)} open"
        LOG.clear()
    for name, agent in (
        ("langgraph", langgraph_agent(allowed={"allowed_decisions": ["approve", "reject"]})),
        ("openai_agents", openai_agent()),
    ):
        run = nb.watch(agent).with_options(attended=True, show=False).run("go")
        await run.settled()
        wrong = 0
        for _ in range(20):
            try:
                run.restart(run.interrupts[0], new_input={"amount": 7})
            except nb.errors.InvalidAnswer:
                wrong += 1
        for one in run.interrupts:
            run.restart(one)
        await run
        found[name] = [wrong, sorted(LOG), [d[2] for d in drawn(run) if d[0] == "pay"]]
        LOG.clear()
    for n, (written, answer) in enumerate(
        (({"amount": "5"}, True), ({"amount": "x"}, nb.Restart(input={"amount": 4})))
    ):
        WRITTEN[:] = [written]
        given = {"pay": [answer, nb.Reject("no")]}
        run = nb.watch(langgraph_agent()).with_options(answers=given).run("go")
        await run
        found[f"written {n}"] = sorted(LOG)
        LOG.clear()
    WRITTEN.clear()
    return found


async def context(kind: str) -> Any:
    """The person's context reaches the framework, and is not stored."""
    import threading
    from dataclasses import dataclass

    from agents import RunContextWrapper, function_tool
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, StateGraph
    from langgraph.runtime import Runtime

    @dataclass
    class User:
        key: Any

    async def pay(wrapper, amount):
        """Pay."""
        held = wrapper.context
        effect(f"{'s3cr3t' in str(held.key if isinstance(held, User) else held['key'])}")
        return "paid"

    pay.__annotations__ = {"wrapper": RunContextWrapper, "amount": int, "return": str}
    found = []
    locked = {"key": "s3cr3t", "lock": threading.Lock()}
    for held in (User("s3cr3t"), {"key": "s3cr3t"}, locked):
        agent = openai_agent()
        agent.tools[1] = function_tool(pay, needs_approval=True)
        flow = nb.watch(agent).with_options(answers={"pay": True}, context=held)
        run = flow.run("go")
        await run
        stored = any("s3cr3t" in event.model_dump_json() for event in run.journal)
        found.append([[e for e in LOG if e != "look"], stored])
        LOG.clear()

    def node(state, runtime):
        return {"said": runtime.context.key}

    node.__annotations__ = {"runtime": Runtime[User]}
    built = StateGraph(dict, context_schema=User)
    built.add_node("node", node)
    built.add_edge(START, "node")
    flow = nb.watch(built.compile(checkpointer=InMemorySaver()))
    found.append((await flow.with_options(context=User("Ada")).run({})).output)
    return found


async def options(kind: str) -> Any:
    """Options of the framework's own run: limits, sessions and threads of several runs, hooks, histories; wrong ones."""
    from agents import RunHooks, SQLiteSession
    from langgraph.types import interrupt
    from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
    from pydantic_ai.usage import UsageLimits

    def asking(state):
        return {"said": [interrupt("Name?")]}

    class Hooks(RunHooks):
        async def on_tool_start(self, context, agent, tool):
            LOG.append(f"hook {tool.name}")

    found: dict[str, Any] = {}
    store, approved = nb.MemoryStore(), {"answers": {"pay": True}}
    given = {"max_turns": 1, "hooks": Hooks(), "store": store}
    run = nb.watch(openai_agent(), **given).with_options(**approved).run("go")
    found["turns"] = [await told_by(run)]
    more = nb.watch(openai_agent(), store=store, max_turns=5)
    found["turns"] += [await told_by((await nb.open_run(run.id, agent=more)).retry()), sorted(LOG)]
    session = SQLiteSession("s")
    config = {"configurable": {"thread_id": "t"}, "recursion_limit": 30}
    graph_agent = langgraph_agent()
    for name, flow in (
        ("session", nb.watch(openai_agent(), session=session)),
        ("thread", nb.watch(graph_agent, config=config)),
        ("its own thread", nb.watch(graph_agent.with_config(config))),
    ):
        found[name] = [await told_by(flow.with_options(**approved).run("go")) for _ in range(2)]
    messages = (await graph_agent.aget_state(config)).values["messages"]
    found["messages"] = sum(message.type == "human" for message in messages)
    asks = nb.watch(graph(asking), config=config).with_options(show=False)
    first = asks.with_options(attended=True).run({"said": []})
    await first.settled()
    other = (await asks.with_options(answers=["Bob"]).run({"said": []})).output
    first.respond(first.interrupts[0], "Ada")
    found["shared"] = [other, await told_by(first)]
    limited = nb.watch(langgraph_agent(), config={"recursion_limit": 1})
    found["limits"] = [await told_by(limited.run("go"))]
    limited = nb.watch(pydantic_ai_agent(), usage_limits=UsageLimits(request_limit=1))
    found["limits"].append(await told_by(limited.with_options(**approved).run("go")))
    history = [
        ModelResponse([ToolCallPart("look", {"path": "a"}, "c0")]),
        ModelRequest([ToolReturnPart("look", "seen", "c0")]),
    ]
    flow = nb.watch(pydantic_ai_agent(), message_history=history, deps="s3cr3t")
    run = flow.run("go")
    found["history"] = await told_by(run)
    found["stored"] = any("s3cr3t" in event.model_dump_json() for event in run.journal)
    found["wrong"] = []
    for wrong in (
        lambda: nb.watch(openai_agent(), max_turn=3),
        lambda: nb.watch(graph(asking), stream_mode="values"),
        lambda: flow.run("go", usage_limits=3),
    ):
        try:
            wrong()
        except TypeError as error:
            found["wrong"].append(str(error))
    LOG.clear()
    return found


async def breakpoints(kind: str) -> Any:
    """Each leg runs twice, as after a kill before its end was stored; the breakpoints are in a graph, or in its subgraph."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, StateGraph

    from nbagent.others.langgraph import Adapter
    from nbagent.others.legs import Leg, Progress

    def node(name):
        def step(state):
            return {"said": [*state.get("said", ()), name]}

        step.__name__ = name
        return step

    @nb.flow
    async def run_twice(number: int, ctx: nb.ToolContext) -> Any:
        adapter, progress = Adapter(graphs[number], {}), Progress(ctx)
        told, leg = [], Leg()
        while leg.output is None:
            answers = {one["id"]: {"value": None} for one in leg.asks}
            both = [await adapter.leg({"said": []}, leg, answers, progress) for _ in range(2)]
            leg = Leg(**both[1])
            told.append([one["message"] for each in both for one in each.get("asks", ())])
        return [told, leg.output]

    graphs = [
        graph(*map(node, "abc"), **{f"interrupt_{when}": "*"}) for when in ("before", "after")
    ]
    built = StateGraph(dict)
    inner = graph(*map(node, "abc"), interrupt_before=["c"])
    inner.checkpointer = None
    built.add_node("inner", inner)
    built.add_edge(START, "inner")
    graphs.append(built.compile(checkpointer=InMemorySaver()))
    return [(await run_twice.run(n)).output for n in range(len(graphs))]


async def mcp(kind: str) -> Any:
    """Rules on the tools of an MCP server; the server is not connected in the first run."""
    from agents import Agent
    from agents.mcp import MCPServerStdio

    with tempfile.TemporaryDirectory() as place:
        script = str(Path(__file__).with_name("mcp_server.py"))
        params = {
            "command": sys.executable,
            "args": [script, f"{place}/notes"],
            "env": {**os.environ},
        }
        gate = {"always": {"tool_names": ["drop"]}}
        server = MCPServerStdio(params, require_approval=gate, client_session_timeout_seconds=60)
        agent = Agent(name="mcp", model=openai_agent().model, mcp_servers=[server])
        flow, found = nb.watch(agent), []
        found.append(await told_by(flow.run("go")))

        class Dropper(type(agent.model)):
            def _out(self, input):
                text, out = super()._out(input)
                for call in out[1:2]:
                    call.name, call.arguments = "drop", '{"table": "a"}'
                return text, out[:2]

        agent.model = Dropper()
        async with server:
            for rule in (nb.deny("drop", reason="closed"), nb.allow("drop"), nb.deny("dropp")):
                flow.policy = [rule]
                found.append(await told_by(flow.run("go")))
        return found


async def shell(kind: str) -> Any:
    """The SDK's shell, with a gate that is approved and rejected, and without one."""
    from agents import Agent, ShellTool
    from openai.types.responses import ResponseFunctionShellToolCall

    action = {"commands": ["ls"], "timeout_ms": 1}
    call = {
        "id": "s",
        "call_id": "c",
        "type": "shell_call",
        "status": "completed",
        "action": action,
    }

    class Sheller(type(openai_agent().model)):
        def _out(self, input):
            ended = [i for i in input if isinstance(i, dict) and "output" in i.get("type", "")]
            out = super()._out(input)[1][:1]
            return ("Done", out) if ended else ("", [ResponseFunctionShellToolCall(**call)])

    async def work(request):
        effect(f"shell {request.data.action.commands}")
        return "files"

    found = []
    for gate, answer in ((True, True), (True, nb.Reject("no")), (False, None)):
        tool = ShellTool(executor=work, needs_approval=gate)
        flow = nb.watch(Agent(name="sheller", model=Sheller(), tools=[tool]))
        run = flow.with_options(answers={"shell": answer} if gate else None).run("go")
        await run
        shown = [e.input["commands"] for e in run.journal if isinstance(e, Interrupted)]
        found.append([[*LOG], shown, [d[:2] for d in drawn(run) if d[0] == "shell"]])
        LOG.clear()
    return found


async def toolsets(kind: str) -> Any:
    """Tools of toolsets that are wrapped: rules and schemas reach them; an agent with validators runs."""
    from pydantic_ai import Agent, ApprovalRequiredToolset, FunctionToolset, RunContext

    def gated(context: Any, definition: Any, given: Any) -> bool:
        return definition.name == "pay"

    tools = ApprovalRequiredToolset(FunctionToolset([look, pay]), gated)
    agent = Agent(pydantic_ai_agent().model, toolsets=[tools], name="payer")
    flow = nb.watch(agent)
    given = {"pay": [nb.Restart(input={"amount": 7}), nb.Reject("no")]}
    run = flow.with_options(answers=given).run("go")
    await run
    rows = [d[:3] for d in drawn(run) if d[0] in ("look", "pay")]
    wrong = {"pay": nb.Restart(input={"amount": "much"})}
    told = await told_by(flow.with_options(answers=wrong).run("go"))
    flow.policy = [nb.deny("pay", reason="closed")]
    denied = (await flow.run("go")).text
    effects = [*LOG]
    LOG.clear()
    prefixed = Agent(agent.model, toolsets=[tools.prefixed("bank")], name="payer")
    names = sorted(nb.watch(prefixed).tools)
    asking.__annotations__["ctx"] = RunContext
    renamed = Agent(
        agent.model, toolsets=[FunctionToolset([look, asking]).renamed({"pay": "asking"})]
    )
    flow = nb.watch(renamed)
    run = flow.with_options(answers={"pay": True}).run("go")
    await run
    reasons = [str(e.metadata) for e in run.journal if isinstance(e, Interrupted)]
    flow.policy = [nb.deny("payy")]
    typo = await told_by(flow.run("go"))
    checked = Agent(agent.model, tools=[look], name="payer")

    @checked.output_validator
    def validated(output: str) -> str:
        return output

    plain = (await nb.watch(checked).run("go")).text
    LOG.clear()
    return {
        "rows": rows,
        "told": told,
        "denied": denied,
        "effects": effects,
        "names": names,
        "reasons": reasons,
        "typo": typo,
        "plain": plain,
    }


def asking(ctx, amount: int) -> str:
    """Pay if a person says so."""
    from pydantic_ai import ApprovalRequired

    if not ctx.tool_call_approved:
        raise ApprovalRequired(metadata={"reason": "much", "limit": 3})
    return f"paid {amount}"


async def inputs(kind: str) -> Any:
    """Inputs of any type, the functional interface, typed output, and texts of messages after each other."""
    from langchain.agents.structured_output import ToolStrategy
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.func import entrypoint, task
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.types import interrupt
    from pydantic import BaseModel

    class Payment(BaseModel):
        amount: int

    def step(state: Payment) -> dict[str, int]:
        return {"amount": state.amount + 1}

    @task
    def asked(text: str) -> Any:
        return interrupt(text)

    @entrypoint(checkpointer=InMemorySaver())
    async def functional(number: int) -> list[Any]:
        return [number, await asked("Name?"), await asked("Age?")]

    built = StateGraph(Payment)
    built.add_node("step", step)
    built.add_edge(START, "step")
    typed = built.compile(checkpointer=InMemorySaver())
    found: list[Any] = []
    flow = nb.watch(functional)
    found.append((await flow.with_options(answers=["Ada", "7"]).run(4)).output)
    flow = nb.watch(typed, to_input=lambda prompt: Payment(amount=prompt))
    found.append((await flow.run(4)).output)

    class Trip(BaseModel):
        nights: int

    agent = langgraph_agent(response_format=ToolStrategy(Trip))
    AGAIN[:] = [("t", "Trip", {"nights": 3})]
    run = nb.watch(agent).with_options(answers={"pay": True}).run("go")
    found.append((await run).output)
    AGAIN.clear()
    LOG.clear()
    spoken = StateGraph(MessagesState)
    spoken.add_node("a", lambda state: {"messages": [AIMessage("I am A.", id="a")]})
    spoken.add_node("b", lambda state: {"messages": [AIMessage("I am B.", id="b")]})
    spoken.add_edge(START, "a")
    spoken.add_edge("a", "b")
    run = nb.watch(spoken.compile(checkpointer=InMemorySaver(), name="two")).run("go")
    await run
    found.append(drawn(run))
    return found


async def odd(kind: str) -> Any:
    """Pauses that only resemble known forms, and schemas that no form can show."""
    found = []
    action = {"name": "pay", "args": {"amount": 1}}
    for value, options in (
        ({"action_requests": [action], "review_configs": []}, {}),
        ({"action_requests": 3, "review_configs": None}, {}),
        ({"type": "tool_approval"}, {}),
        ({"type": "tool_approval", "name": "a b", "args": {}, "tool_call_id": "x"}, {}),
        ({"question": "Which?", "choices": []}, {}),
        ([b"\xff", float("nan")], {}),
        ("Text?", {"response_schema": {"$ref": "http://example.com"}}),
        ("Text?", {"response_schema": {"allOf": [{"$ref": "#"}] * 500}}),
        ({"question": "Which?", "choices": ["a", "b"]}, {"response_schema": {"type": "array"}}),
    ):

        def node(state: Any, value: Any = value, options: Any = options) -> Any:
            from langgraph.types import interrupt

            return {"said": interrupt(value, **options)}

        run = nb.watch(graph(node)).with_options(answers=[["x"]]).run({"said": []})
        output = (await run).output
        found.append([asked(run), output["said"]])
    return found


async def stopped(kind: str) -> Any:
    """A stop during a leg cancels it and leaves no task."""
    reached = asyncio.Event()

    async def slow(path: str) -> int:
        """Look slowly."""
        reached.set()
        await asyncio.sleep(600)
        return 1

    if kind == "pydantic_ai":
        agent = pydantic_ai_agent()
        agent = type(agent)(agent.model, output_type=agent.output_type, tools=[])
        agent.tool_plain(name="look")(slow)
    elif kind == "openai_agents":
        from agents import function_tool

        agent = openai_agent()
        agent.tools[0] = function_tool(slow, name_override="look")
    else:
        agent = graph(slow_node(reached))
    run = (
        nb.watch(agent)
        .with_options(attended=True, show=False)
        .run("go" if kind != "graph" else {"said": []})
    )
    await reached.wait()
    await run.cancel()
    await asyncio.sleep(0)
    left = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    return {"status": run.status, "tasks": [str(t.get_coro()) for t in left]}


def slow_node(reached):
    async def slow(state):
        reached.set()
        await asyncio.sleep(600)

    return slow


async def retried(kind: str) -> Any:
    """Their exception fails the run; a retry continues from the checkpoint, without a finished leg or answer again."""
    broken = [True]
    ran: list[str] = []

    def first(state):
        ran.append("first")
        return {"said": ["one"]}

    def ask(state):
        from langgraph.types import interrupt

        value = interrupt("Name?")
        if broken.pop() if broken else False:
            raise RuntimeError("down")
        ran.append("ask")
        return {"said": [*state["said"], value]}

    run = nb.watch(graph(first, ask)).with_options(answers=["Ada"]).run({"said": []})
    told = await told_by(run)
    again = run.retry()
    result = await again
    return {"told": told, "output": result.output, "ran": ran, "asked": asked(again)}


async def pauses(kind: str) -> Any:
    """Plain interrupts in several forms, one after the other: text, choices, a schema, an unknown value, a breakpoint."""
    from pydantic import BaseModel, Field

    class Trip(BaseModel):
        nights: int = Field(ge=1)

    got: list[Any] = []

    def node(value, name, **options):
        def step(state):
            from langgraph.types import interrupt

            got.append(interrupt(value, **options))
            return {"said": [*state["said"], name]}

        step.__name__ = name
        return step

    def twice(state):
        from langgraph.types import interrupt

        got.extend(answers := [interrupt("Same?"), interrupt("Same?")])
        return {"said": [*state["said"], *answers]}

    def last(state):
        return {"said": [*state["said"], "last"]}

    built = graph(
        node("Name?", "text"),
        node({"question": "Which?", "options": ["a", "b"]}, "choices"),
        node({"plan": "x"}, "typed", response_schema=Trip),
        node({"action": "pay", "approve": True}, "unknown"),
        twice,
        last,
        interrupt_before=["last"],
    )
    flow = nb.watch(built, name="graph")
    heard: list[Any] = []
    given = ["Ada", "b", {"nights": 2}, {"yes": True}, "Bob", "Cy", True]

    def person(interrupt: nb.PendingInterrupt) -> Any:
        heard.append([interrupt.kind, interrupt.metadata])
        return given[len(heard) - 1]

    run = flow.with_options(answers=person).run({"said": []})
    result = await run
    return {
        "heard": heard,
        "got": [str(each) for each in got],
        "output": result.output,
    }


async def refused(kind: str) -> Any:
    """Values that are not agents, graphs without a checkpointer, rules on calls that nobody gates."""
    told, typos = [], []
    for value in (object(), "graph", lambda: 1, nb.Agent(nb.ScriptedModel([])), type):
        try:
            nb.watch(value)
        except nb.errors.UsageError as error:
            told.append(str(error))
    bare = graph(lambda_node)
    bare.checkpointer = None
    try:
        nb.watch(bare)
    except nb.errors.UsageError as error:
        told.append(str(error))
    for name in ("pydantic_ai", "openai_agents"):
        flow = nb.watch(AGENTS[name]())
        for wrong in ("payy", "xyz"):
            flow.policy = [nb.deny(wrong)]
            try:
                flow.run("go")
            except nb.errors.UsageError as error:
                typos.append(str(error))
        flow.policy = [nb.deny("look")]
        told.append(await told_by(flow.run("go")))
        told.append(str([*LOG]))
        LOG.clear()
        flow.policy = [nb.deny("pay", reason="closed"), nb.allow("*")]
        told.append((await flow.run("go")).text)
        told.append(str([*LOG]))
        LOG.clear()
    return told, typos


def lambda_node(state):
    return state


# --- kills


async def _killed(kind: str, place: str, after: int | None) -> None:
    """A run that is answered, and whose process is killed after so many events."""
    async with opened(kind, place) as agent:
        flow = nb.watch(agent, store=f"{place}/runs.db", name="agent")
        given = {"pay": [nb.Restart(), nb.Reject("no")]}
        run = flow.with_options(id="r", answers=given, show=False).run("go")
        count = 0

        def listen(event: Any) -> None:
            nonlocal count
            count += isinstance(event, Event)
            if count == after:
                os.kill(os.getpid(), signal.SIGKILL)

        for event in run.subscribe(listen):
            listen(event)
        await run


class opened:  # noqa: N801 - used like a function
    """The agent, with a checkpointer on disk if it is a graph."""

    def __init__(self, kind: str, place: str) -> None:
        self._kind, self._place = kind, place
        self._saver: Any = None

    async def __aenter__(self) -> Any:
        if not self._kind.startswith("langgraph"):
            return AGENTS[self._kind]()
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        self._saver = AsyncSqliteSaver.from_conn_string(f"{self._place}/threads.db")
        mode = "per_call" if self._kind.endswith("per_call") else "batched"
        return langgraph_agent(mode, await self._saver.__aenter__())

    async def __aexit__(self, *error: Any) -> None:
        if self._saver is not None:
            await self._saver.__aexit__(*error)


async def _finished(kind: str, place: str) -> dict[str, Any]:
    """The end of the killed run, with a person who says run again."""
    async with opened(kind, place) as agent:
        store = nb.SQLiteStore(f"{place}/runs.db")
        flow = nb.watch(agent, store=store, name="agent")
        if "r" not in store.run_ids():
            return {"status": "not started", "asked": [], "again": 0}
        run = await nb.open_run("r", agent=flow, store=store, attended=True, show=False)
        again = 0
        await run.settled()
        async with asyncio.timeout(30):
            while run.status not in ("completed", "failed", "cancelled"):
                await run.settled()
                for one in run.interrupts:
                    again += one.kind == "lost"
                    amount = one.input.get("amount")
                    run.reject(one, "no") if amount == 6 else run.restart(one)
                await asyncio.sleep(0.05)
        answered: set[str] = set()
        twice = []
        for event in run.journal:
            if isinstance(event, Resolved):
                answered.add(event.call_id)
            elif isinstance(event, Interrupted) and event.kind == "approval":
                twice += [event.call_id] if event.call_id in answered else []
        text = run.result.text if run.status == "completed" else str(run.status)
        return {
            "status": run.status,
            "asked": asked(run),
            "again": again,
            "twice": twice,
            "text": text,
        }


def killed(kind: str, after: int | None, inside: str = "") -> dict[str, Any]:
    """The outcome of one kill: in a fork after ``after`` events or inside a tool, and finished in another fork."""
    with tempfile.TemporaryDirectory() as place:
        effects = Path(place, "effects")
        effects.touch()
        os.environ[EFFECTS] = str(effects)
        os.environ[KILL_IN] = inside
        _in_fork(lambda: asyncio.run(_killed(kind, place, after)))
        os.environ[KILL_IN] = ""
        written = Path(place, "outcome")
        _in_fork(lambda: written.write_text(json.dumps(asyncio.run(_finished(kind, place)))))
        outcome = json.loads(written.read_text()) if written.exists() else {"status": "no outcome"}
        ran = effects.read_text().split("\n")[:-1]
        del os.environ[EFFECTS]
        most = max([ran.count(each) for each in ran], default=0)
        return outcome | {
            "ran": ran,
            "most": most,
            "rejected ran": "pay 6" in ran,
            "kill": [kind, after, inside],
        }


def _in_fork(work: Any) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def is_right(outcome: dict[str, Any]) -> bool:
    """Whether no call ran more often than a person chose, and no answer was lost or asked for again."""
    if outcome["status"] == "not started":
        return not outcome["ran"]
    return (
        outcome["status"] == "completed"
        and not outcome["twice"]
        and not outcome["rejected ran"]
        and outcome["most"] <= 1 + outcome["again"]
        and outcome["asked"].count("approval") == 2
    )


def kills(count: int, seed: int = 0) -> dict[str, Any]:
    """The kills that went wrong, of so many: after each event of each agent, and inside each tool."""
    for make in AGENTS.values():
        make()  # import the frameworks once, before the forks
    cases: list[tuple[str, int | None, str]] = [
        (kind, None, inside) for kind in AGENTS for inside in ("look", "pay 5")
    ]
    cases += [(kind, after, "") for kind in AGENTS for after in range(1, 22)]
    random.Random(seed).shuffle(cases)
    chosen = [cases[n % len(cases)] for n in range(count)]
    with tempfile.TemporaryDirectory() as place:
        workers = []
        for worker in range(WORKERS):
            pid = os.fork()
            if pid == 0:
                own = [killed(*case) for case in chosen[worker::WORKERS]]
                Path(place, str(worker)).write_text(json.dumps(own))
                os._exit(0)
            workers.append(pid)
        for pid in workers:
            os.waitpid(pid, 0)
        written = [Path(place, str(worker)) for worker in range(WORKERS)]
        outcomes = [one for each in written for one in json.loads(each.read_text())]
    wrong = [one for one in outcomes if not is_right(one)]
    return {
        "count": len(outcomes),
        "wrong": wrong,
        "again": sum(o.get("again", 0) for o in outcomes),
    }


CASES = {
    f.__name__: f
    for f in (
        whole,
        nested,
        again,
        one_by_one,
        recorded,
        stopped,
        retried,
        pauses,
        refused,
        failed,
        decisions,
        context,
        options,
        breakpoints,
        mcp,
        shell,
        toolsets,
        inputs,
        odd,
    )
}


def main() -> None:
    warnings.simplefilter("ignore")
    if sys.argv[1] == "kills":
        print(json.dumps(kills(int(sys.argv[2]), int((sys.argv[3:] or [0])[0]))))
        return
    outcomes = {}
    for each in sys.argv[1:]:
        case, _, kind = each.partition(":")
        outcomes[each] = asyncio.run(CASES[case](kind))
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
