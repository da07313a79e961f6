"""``nb.trace`` with OpenTelemetry's own exporter: a run over two processes, and rows in a pool, at an OTLP receiver."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import nbagent as nb
from nbagent.listeners import notify
from tests.integration.test_batch_elsewhere import spawned
from tests.until import until

AGENT = """
    import asyncio, sys
    import nbagent as nb
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = OTLPSpanExporter(endpoint=sys.argv[1])
    trace.set_tracer_provider(TracerProvider())
    trace.get_tracer_provider().add_span_processor(BatchSpanProcessor(exporter))
    call = nb.ScriptedModel.call
    agent = nb.Agent(nb.ScriptedModel(STEPS), name="banker", store="runs.db")

    @agent.tool(approval=True)
    def pay(amount: int) -> str:
        "Pay."
        with trace.get_tracer("bank").start_as_current_span("transfer"):
            return "paid"

    nb.trace()
    """
FIRST = """
    async def main():
        with trace.get_tracer("app").start_as_current_span("request"):
            run = agent.run("go", id="r1", attended=True, show=False)
        await run.settled()
        print("asks", flush=True)
        if sys.argv[2] == "follows":
            await run

    asyncio.run(main())
    """
SECOND = """
    async def main():
        run = await nb.open_run("r1", agent=agent, attended=True, show=False)
        if sys.argv[2] == "cancel":
            await run.cancel()
        else:
            run.approve(run.interrupts[0])
            await run

    asyncio.run(main())
    """


class Collector(ThreadingHTTPServer):
    """A server that keeps the spans of OTLP requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Export)
        self.spans: list[Any] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Export(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server: Any = self.server
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:  # as the base class would print it
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    """An OTLP receiver on loopback."""
    server = Collector()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("first", "second"), [("ends", "approve"), ("follows", "approve"), ("ends", "cancel")]
)
def test_c733_a_run_that_two_processes_run_is_one_trace_in_the_request_that_started_it(
    first: str, second: str, collector: Collector, tmp_path: Path
) -> None:
    """The first process ends while the run waits, or follows it. The second writes the wait, the rest, and the run."""

    def begin(code: str, steps: str, word: str) -> subprocess.Popen[str]:
        script = textwrap.dedent(AGENT).replace("STEPS", steps) + textwrap.dedent(code)
        url = f"http://127.0.0.1:{collector.server_port}/v1/traces"
        return subprocess.Popen(
            [sys.executable, "-c", script, url, word],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    with begin(FIRST, '[call("pay", amount=7)]', first) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "asks\n"
        if first == "ends":
            one.wait()
        with begin(SECOND, '["done"]', second) as two:
            _, errors = two.communicate()
        _, more = one.communicate()
    assert "Traceback" not in errors + more, errors + more
    assert len({span.trace_id for span in collector.spans}) == 1
    names = {span.span_id: span.name for span in collector.spans}
    assert len(names) == len(collector.spans)
    found = [
        (names.get(span.parent_span_id), span.name)
        for span in collector.spans
        if span.parent_span_id
    ]
    common = [
        ("invoke_agent banker", "chat scripted"),
        ("invoke_agent banker", "wait_for_person pay"),
        ("request", "invoke_agent banker"),
    ]
    rest = [
        ("execute_tool pay", "transfer"),
        ("invoke_agent banker", "chat scripted"),
        ("invoke_agent banker", "execute_tool pay"),
    ]
    assert sorted(found) == sorted(common if second == "cancel" else common + rest)


def rows_agent() -> nb.Agent:
    """An agent whose rows need an approval."""

    def reply(messages: Any) -> Any:
        return "done" if messages[-1]["role"] == "tool" else nb.ScriptedModel.call("pay", amount=7)

    agent = nb.Agent(nb.ScriptedModel(reply), name="banker")

    @agent.tool(approval=True)
    def pay(amount: int) -> str:
        return "paid"

    return agent


async def test_c729_rows_in_other_processes_are_reported_and_traced_where_the_batch_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The workers know neither recipient nor exporter; each question and each span is written once."""
    monkeypatch.setattr(notify, "GATHER", 0.0)
    exporter, sent = InMemorySpanExporter(), []
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    store = nb.SQLiteStore(tmp_path / "runs.db")
    with nb.notify(sent.append), nb.trace(tracer_provider=provider), spawned(1) as pool:
        batch = nb.map(
            rows_agent(),
            ["a", "b"],
            prompt="{}",
            id="march",
            store=store,
            executor=pool,
            attended=True,
            show=False,
        )
        await until(lambda: batch.counts["interrupted"] == 2)
        await until(lambda: bool(sent))
        assert "banker: pay asks for approval" in sent[0].text
        await batch.questions.approve()
        await until(lambda: batch.counts["completed"] == 2)
        await batch
    spans = exporter.get_finished_spans()
    assert len({span.context.span_id for span in spans}) == len(spans)
    assert sorted(span.name for span in spans) == sorted(
        [
            *["invoke_workflow batch", "execute_tool batch"],
            *["chat scripted"] * 4,
            *["execute_tool pay", "invoke_agent banker", "wait_for_person pay"] * 2,
        ]
    )
