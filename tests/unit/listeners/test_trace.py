"""``nb.trace()``: the spans of runs, as the SDK exports them from memory."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from pydantic import SecretStr

import nbagent as nb
from nbagent.core.base.events import ModelResponded, RunStarted
from nbagent.core.base.model import TextDelta, Usage
from nbagent.core.hooks import hooks
from nbagent.core.run.run import session_of
from nbagent.listeners.spans import SpanFold
from tests.until import until

call = nb.ScriptedModel.call


class Traced:
    """The spans that were exported."""

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The ended spans, in order."""
        return self._exporter.get_finished_spans()

    def one(self, name: str) -> ReadableSpan:
        """The one span of this name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def tree(self) -> list[str]:
        """Each span with its parents' names, and its error in brackets; checks that no parent is missing."""
        known = {span.context.span_id: span for span in self.spans}
        assert len(known) == len(self.spans)

        def path(span: ReadableSpan) -> str:
            error = (span.attributes or {}).get("error.type")
            name = f"{span.name} [{error}]" if error else span.name
            assert (span.status.status_code.name == "ERROR") == (error is not None)
            if span.parent is None:
                return name
            around = known[span.parent.span_id]
            assert around.context.trace_id == span.context.trace_id
            assert around.start_time <= span.start_time <= span.end_time <= around.end_time
            return f"{path(around).partition(' [')[0]} > {name}"

        return sorted(path(span) for span in self.spans)


@pytest.fixture
def traced() -> Iterator[Traced]:
    """Traces without content."""
    made = Traced(TracerProvider())
    with nb.trace(tracer_provider=made.provider):
        yield made
    assert hooks.live_runs == hooks.generates == hooks.rows_elsewhere == ()


def agent_of(
    *steps: Any, name: str = "planner", tools: Sequence[Any] = (), **options: Any
) -> nb.Agent:
    """An agent with a tool that needs an approval, one that fails, and one that asks."""
    model = nb.ScriptedModel([*steps], usage=Usage(10, 5, 0.25))
    agent = nb.Agent(model, name=name, tools=tools, **options)

    @agent.tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid to Ann"

    @agent.tool
    def fail() -> str:
        """Fail."""
        raise ValueError("secret detail")

    @agent.tool
    async def ask(ctx: nb.ToolContext) -> str:
        """Ask."""
        return await ctx.ask("Really, Ann?", reply=str)

    return agent


async def answered(run: nb.Run, answer: Callable[[Any], Any]) -> None:
    """Answer all questions of a run, and wait for its end."""
    while (await run.settled()).interrupts:
        answer(run.interrupts[0])
    await run


async def test_c730_a_run_is_a_tree_of_spans_by_the_conventions_without_content(
    traced: Traced,
) -> None:
    """The run, each request to the model, each attempt at a call, each wait for a person; inner agents inside."""
    helper = agent_of(call("fail"), "Ann is fine", name="helper")
    agent = agent_of(
        [call("pay", amount=3), call("fail"), call("ask")],
        call("helper", prompt="Ann?"),
        "Ann has it",
        tools=[helper.as_tool(description="Help.")],
    )
    run = agent.run("Pay Ann", attended=True, show=False)
    await run.settled()
    await until(lambda: len(run.interrupts) == 2)
    questions = {one.tool_name: one for one in run.interrupts}
    run.approve(questions["pay"])
    run.respond(questions["ask"], "yes, Ann")
    await run
    outer = "invoke_agent planner"
    inner = f"{outer} > execute_tool helper > invoke_agent helper"
    assert traced.tree() == sorted(
        [
            outer,
            *[f"{outer} > chat scripted"] * 3,
            f"{outer} > execute_tool ask",
            f"{outer} > execute_tool ask > wait_for_person ask",
            f"{outer} > execute_tool fail [tool_error]",
            f"{outer} > execute_tool helper",
            f"{outer} > execute_tool pay",
            f"{outer} > wait_for_person pay",
            inner,
            *[f"{inner} > chat scripted"] * 2,
            f"{inner} > execute_tool fail [tool_error]",
        ]
    )
    assert dict(traced.one(outer).attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "planner",
        "gen_ai.provider.name": "_OTHER",
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 15,
        "nbagent.run.id": run.id,
    }
    chat = traced.spans[0]
    assert (chat.name, chat.kind.name) == ("chat scripted", "CLIENT")
    assert dict(chat.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "_OTHER",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "nbagent.usage.cost": 0.25,
    }
    assert dict(traced.one("execute_tool pay").attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "pay",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
    }
    assert dict(traced.one("wait_for_person pay").attributes or {}) == {
        "nbagent.wait.kind": "approval",
        "nbagent.interrupt.id": questions["pay"].id,
        "gen_ai.tool.name": "pay",
        "gen_ai.tool.call.id": "call_1",
        "nbagent.answer": "restart",
        "nbagent.answered_by": "code",
    }
    texts = str([(span.name, dict(span.attributes or {}), span.events) for span in traced.spans])
    assert "Ann" not in texts
    assert "secret" not in texts


async def test_c731_content_is_written_if_asked_for_bounded_and_with_secrets_masked() -> None:
    """Prompt, answers, inputs and results, in the conventions' form."""
    agent = agent_of([call("login", password="hunter2"), call("pay", amount=3)], "x" * 50_000)

    @agent.tool
    def login(password: SecretStr) -> str:
        """Log in."""
        return f"in with {len(password)} letters"

    traced = Traced(TracerProvider())
    with nb.trace(content=True, tracer_provider=traced.provider):
        run = agent.run("Pay Ann", attended=True, show=False)
        await answered(run, run.approve)
    outer = dict(traced.one("invoke_agent planner").attributes or {})
    assert (
        outer["gen_ai.input.messages"]
        == '[{"role":"user","parts":[{"type":"text","content":"Pay Ann"}]}]'
    )
    assert len(str(outer["gen_ai.output.messages"])) == 10_000
    paid = dict(traced.one("execute_tool pay").attributes or {})
    assert paid["gen_ai.tool.call.arguments"] == '{"amount":3}'
    assert paid["gen_ai.tool.call.result"] == '"paid to Ann"'
    assert '"name":"pay","arguments":{"amount":3}' in str(traced.spans[0].attributes)
    login_span = dict(traced.one("execute_tool login").attributes or {})
    assert login_span["gen_ai.tool.call.arguments"] == '{"password":"**********"}'
    assert "hunter2" not in str([span.attributes for span in traced.spans])


async def test_c732_a_run_belongs_to_the_span_around_it_and_spans_of_a_body_to_their_call(
    traced: Traced,
) -> None:
    """The request's span ends long before the run. Spans that a tool makes are inside of its own call."""
    tracer = traced.provider.get_tracer("app")
    agent = agent_of([call("look"), call("read")], "done")

    @agent.tool
    def look() -> str:
        """Look."""
        with tracer.start_as_current_span("in a thread"):
            return "x"

    @agent.tool
    async def read() -> str:
        """Read."""
        with tracer.start_as_current_span("in a task"):
            helper = agent_of("done", name="apart")
            return (await helper.run("go", show=False, nested=False)).text

    with tracer.start_as_current_span("request") as request:
        run = agent.run("go", show=False)
    await run
    names = [span.name for span in traced.spans]
    assert Counter(names)["request"] == 1
    request_context = request.get_span_context()
    root = traced.one("invoke_agent planner")
    assert root.parent is not None
    assert root.parent.span_id == request_context.span_id
    assert {span.context.trace_id for span in traced.spans} == {request_context.trace_id}
    parents = {span.context.span_id: span.name for span in traced.spans}
    found = {span.name: parents[span.parent.span_id] for span in traced.spans if span.parent}
    assert found["in a thread"] == "execute_tool look"
    assert found["in a task"] == "execute_tool read"
    assert found["invoke_agent apart"] == "in a task"
    parent = run.journal[0].trace_parent
    expected = f"00-{request_context.trace_id:032x}-{request_context.span_id:016x}-0"
    assert str(parent)[:-1] == expected


class Fails:
    """A model whose server fails twice: before its response, and within it."""

    name = "openai:gpt-x"

    def __init__(self) -> None:
        self._then = nb.ScriptedModel(["done"])
        self.count = 0

    async def stream(self, request: Any) -> Any:
        """Fail, fail within a response, then answer."""
        self.count += 1
        if self.count == 2:
            yield TextDelta("half")
        if self.count < 3:
            raise nb.errors.ModelError("overloaded")
        async for delta in self._then.stream(request):
            yield delta


async def test_c734_failures_denials_and_stops_have_an_error_type(traced: Traced) -> None:
    """A failed request and its run, then the retry; a denied call; a rejected one; a run stopped while it asks."""
    run = nb.Agent(Fails(), name="first").run("go", show=False)
    for _ in range(2):
        with pytest.raises(nb.errors.ModelError):
            await run
        run.retry()
    await run
    outer = "invoke_agent first"
    assert traced.tree() == [
        outer,
        f"{outer} > chat gpt-x",
        f"{outer} > chat gpt-x [ModelError]",
        f"{outer} > chat gpt-x [incomplete]",
        *[f"{outer} [ModelError]"] * 2,
    ]
    assert len({span.context.trace_id for span in traced.spans}) == 1
    provider = (traced.spans[0].attributes or {})["gen_ai.provider.name"]
    assert provider == "openai"

    second = Traced(TracerProvider())
    with nb.trace(tracer_provider=second.provider):  # replaces the first
        agent = agent_of(
            [call("fail"), call("pay", amount=1)], call("ask"), name="x", policy=[nb.deny("fail")]
        )
        run = agent.run("go", attended=True, show=False)
        run = await run.settled()
        run.reject(run.interrupts[0])
        await until(lambda: any(one.tool_name == "ask" for one in run.interrupts))
        await run.cancel()
    outer = "invoke_agent x"
    assert second.tree() == [
        f"{outer} > chat scripted",
        f"{outer} > chat scripted",
        f"{outer} > execute_tool ask > wait_for_person ask",
        f"{outer} > execute_tool ask [cancelled]",
        f"{outer} > execute_tool fail [denied]",
        f"{outer} > wait_for_person pay",
        f"{outer} [cancelled]",
    ]
    assert len(traced.spans) == 6
    await nb.Agent(nb.ScriptedModel(["again"])).run("go", show=False)
    assert len(traced.spans) == 8  # the first continues


async def test_c735_flows_batches_and_generate_are_traced_too(traced: Traced) -> None:
    """A flow is a workflow with the calls of its body; a row has its batch; a paused ``generate`` ends at the pause."""
    helper = agent_of("done", name="helper")

    @nb.flow
    async def report(ctx: nb.ToolContext, topic: str) -> str:
        """Report."""
        first, second = await asyncio.gather(
            helper.run("a", show=False), helper.run("b", show=False)
        )
        return first.text + second.text

    helper.model = nb.ScriptedModel(lambda _: "done")
    await report.with_options(show=False).run("x")
    body = "invoke_workflow report > execute_tool report"
    assert traced.tree() == [
        "invoke_workflow report",
        body,
        *[f"{body} > invoke_agent helper"] * 2,
        *[f"{body} > invoke_agent helper > chat scripted"] * 2,
    ]

    again = Traced(TracerProvider())
    with nb.trace(tracer_provider=again.provider):
        await nb.map(helper, ["a", "b"], prompt="{}", id="march", show=False)
        rows = [dict(s.attributes or {}) for s in again.spans if s.name == "invoke_agent helper"]
        assert sorted((row["nbagent.batch.id"], row["nbagent.row"]) for row in rows) == [
            ("march", 0),
            ("march", 1),
        ]
        assert len({span.context.trace_id for span in again.spans}) == 3
        assert again.one("invoke_workflow batch").parent is None

        before = len(again.spans)
        agent = agent_of(call("pay", amount=3), "done", name="steps")
        response = await agent.generate("go")
        assert not otel.get_current_span().get_span_context().is_valid
        assert [span.name for span in again.spans[before:]] == [
            "chat scripted",
            "invoke_agent steps",
        ]
        replies = [nb.tool_restart(response.interrupts[0])]
        await agent.generate(messages=response.messages, tool_restarts=replies)
        assert [span.name for span in again.spans[before + 2 :]] == [
            "execute_tool pay",
            "chat scripted",
            "invoke_agent steps",
        ]
        failing = agent_of(name="none")
        with pytest.raises(nb.errors.ModelError):
            await failing.generate("go")
        assert [
            (span.name, (span.attributes or {})["error.type"]) for span in again.spans[-2:]
        ] == [("chat scripted", "ModelError"), ("invoke_agent none", "ModelError")]


async def test_c736_the_spans_of_a_stored_run_are_the_same_as_those_of_the_live_run(
    tmp_path: Any,
) -> None:
    """Written from the journal, in any process: equal ids, names, times and attributes."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    live, stored = Traced(TracerProvider()), Traced(TracerProvider())
    agent = agent_of([call("pay", amount=3), call("fail")], call("ask"), "done", store=store)
    with nb.trace(tracer_provider=live.provider):
        run = agent.run("go", attended=True, show=False)
        await answered(
            run, lambda i: run.approve(i) if i.tool_name == "pay" else run.respond(i, "y")
        )
    with nb.trace(tracer_provider=stored.provider) as tracing:
        assert tracing.write(await nb.open_run(run.id, agent=agent, store=store)) == 9
        assert tracing.write(run) == 9

    def plain(spans: Sequence[ReadableSpan]) -> list[Any]:
        return sorted((s.context.span_id, s.context.trace_id, s.to_json()) for s in spans)

    assert plain(stored.spans[:9]) == plain(stored.spans[9:]) == plain(live.spans)


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("gpt-5.1", "openai", "gpt-5.1"),
        ("ft:gpt-4o:acme::x", "openai", "ft:gpt-4o:acme::x"),
        ("anthropic:claude-x", "anthropic", "claude-x"),
        ("azure:gpt-5", "azure.ai.openai", "gpt-5"),
        ("litellm:bedrock/amazon.nova", "aws.bedrock", "amazon.nova"),
        ("gpt-5 or anthropic:claude-x", "_OTHER", "gpt-5 or anthropic:claude-x"),
        ("mine", "_OTHER", "mine"),
    ],
)
def test_a_model_has_its_provider_by_the_conventions_name(
    name: str, provider: str, model: str
) -> None:
    """From the model's name in the journal, which is all that a stored run has."""
    fold = SpanFold("r1")
    fold.after(RunStarted(at=1.0, agent="a", model=name, messages=[], max_turns=1))
    (chat,) = fold.after(ModelResponded(at=2.0, text="x"))
    assert chat.attributes["gen_ai.provider.name"] == provider
    assert chat.attributes["gen_ai.request.model"] == model
    (other,) = fold.after(ModelResponded(at=3.0, text="x", model="xai:grok"))
    assert (other.name, other.attributes["gen_ai.provider.name"]) == ("chat grok", "x_ai")


async def test_a_processor_that_fails_fails_no_run(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged, and the run is no longer traced."""

    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise OSError("disk full")

    provider = TracerProvider()
    provider.add_span_processor(Broken())
    with nb.trace(tracer_provider=provider):
        assert (await agent_of("done").run("go", show=False)).text == "done"
        assert (await agent_of("done").generate("go")).text == "done"
    assert "disk full" in caplog.text


async def test_two_runs_of_one_id_are_two_traces(traced: Traced) -> None:
    """As in two stores, or after the first was deleted."""
    for store in (nb.MemoryStore(), nb.MemoryStore()):
        await agent_of("done").run("go", id="daily", store=store, show=False)
    assert len({span.context.trace_id for span in traced.spans}) == 2


async def test_a_trace_is_sampled_as_a_whole() -> None:
    """The sampler decides once for each trace, by its id: all spans of a run are written, or none."""
    traced = Traced(TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.5))))
    with nb.trace(tracer_provider=traced.provider):
        for _ in range(20):
            await agent_of("done").run("go", show=False)
    counts = Counter(span.context.trace_id for span in traced.spans)
    assert set(counts.values()) == {2}
    assert 0 < len(counts) < 20


async def test_c737_without_a_provider_a_warning_says_so_and_runs_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One warning; a run in progress is traced from its start; a stopped trace leaves nothing at runs."""
    with nb.trace() as tracing:
        assert (await agent_of("done").run("go", show=False)).text == "done"
        assert (await agent_of("done").generate("go")).text == "done"
    assert [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ] == [
        "nb.trace writes no spans: no TracerProvider of the OpenTelemetry SDK is set. "
        "Use opentelemetry.trace.set_tracer_provider"
    ]
    assert repr(tracing) == "<Tracing, stopped>"
    run = agent_of(call("pay", amount=3), "done").run("go", attended=True, show=False)
    await run.settled()
    before = session_of(run).journal.listeners
    traced = Traced(TracerProvider())
    tracing = nb.trace(tracer_provider=traced.provider)
    assert repr(tracing) == "<Tracing>"
    tracing.stop()
    assert session_of(run).journal.listeners == before
    with nb.trace(tracer_provider=traced.provider):
        await answered(run, run.approve)
    assert "invoke_agent planner > wait_for_person pay" in {
        f"invoke_agent planner > {span.name}" for span in traced.spans
    }
    for options, text in (
        ({"content": "yes"}, "content must be True or False"),
        ({"tracer_provider": "http://x"}, "must be a TracerProvider"),
    ):
        with pytest.raises(nb.errors.UsageError, match=text):
            nb.trace(**options)
    with pytest.raises(nb.errors.UsageError, match="write takes a run"):
        tracing.write("r1")  # type: ignore[arg-type]
