"""``nb.trace``: OpenTelemetry spans of the runs of this process, through ``opentelemetry-api``.

A listener of each run folds its events to spans (``spans.py``), and writes each one when it ends. The process that
drives a run writes. The ids of spans come from the run, so that a run which several processes continue has one trace.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from nbagent.core.base.errors import UsageError
from nbagent.core.base.events import RunCancelled, RunStarted, StoredEvent
from nbagent.core.call.setup import current_runs
from nbagent.core.hooks import hooks
from nbagent.core.journal.journal import Journal, RunEvent
from nbagent.core.run.run import Run, session_of
from nbagent.core.run.session import Session, all_sessions
from nbagent.core.state.state import RunState
from nbagent.core.tools.spec import RunSpec

from .spans import Scope, Span, SpanFold

try:
    from opentelemetry import context as otel_context
    from opentelemetry import trace as otel
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:
    raise ImportError(
        f'nb.trace needs a package that is not installed ({error.name}): pip install "jupyter-nbagent[otel]"'
    ) from error

T = TypeVar("T")
MAX_WRITTEN = 100_000
"""Spans that are remembered, so that two handles of a run write each span once."""
_KINDS = {"internal": otel.SpanKind.INTERNAL, "client": otel.SpanKind.CLIENT}
_PARENTS = TraceContextTextMapPropagator()

logger = logging.getLogger("nbagent")


class Tracing:
    """Writes spans of the runs of this process until ``stop``, or until the end of a ``with`` block."""

    def __init__(self, *, content: bool, provider: Any) -> None:
        self.has_content = content
        self._provider = provider
        self._process = os.getpid()
        self._followed: WeakKeyDictionary[Session, _TracedRun] = WeakKeyDictionary()
        self._written: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._lock = threading.Lock()
        self._has_warned = False

    def __repr__(self) -> str:
        return f"<Tracing{'' if self.follow in hooks.live_runs else ', stopped'}>"

    def start(self) -> None:
        """Write spans in place of the last tracing, which continues afterwards."""
        if _tracings:
            _tracings[-1].pause()
        _tracings.append(self)
        self.resume()

    def stop(self) -> None:
        """Write no further spans; a tracing that this one has replaced continues. Open spans are not written."""
        is_last = _tracings[-1:] == [self]
        if self in _tracings:
            _tracings.remove(self)
        self.pause()
        if is_last and _tracings:
            _tracings[-1].resume()

    def resume(self) -> None:
        """Write spans from now on."""
        hooks.live_runs += (self.follow,)
        hooks.generates += (self.around_generate,)
        hooks.rows_elsewhere += (self.read_row,)
        for session in all_sessions():
            self.follow(session)

    def pause(self) -> None:
        """Write no spans for now."""
        hooks.live_runs = tuple(one for one in hooks.live_runs if one != self.follow)
        hooks.generates = tuple(one for one in hooks.generates if one != self.around_generate)
        hooks.rows_elsewhere = tuple(one for one in hooks.rows_elsewhere if one != self.read_row)
        for session in all_sessions():
            followed = self._followed.pop(session, None)
            if followed is not None:
                session.journal.unsubscribe(followed)

    def __enter__(self) -> Tracing:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def write(self, run: Run) -> int:
        """Write the ended spans of a run, such as one that was opened from its store. Returns their number.

        Their ids are those that the run's own process has written or would have written.
        """
        if not isinstance(run, Run):
            raise UsageError(f"write takes a run, got {run!r:.80}")
        tracer = self.tracer()
        if tracer is None:
            return 0
        journal = session_of(run).journal
        written = _TracedRun(self, journal, tracer)
        return sum(written.add(event, writes=True, again=True) for event in journal.read())

    # --- the three kinds of runs

    def follow(self, session: Session) -> None:
        """Write the spans that a run ends from now on."""
        with _failures_logged(session.run_id):
            tracer = self.tracer()
            if tracer is None or session in self._followed:
                return
            if not session.journal.state.position:
                session.spec = replace(session.spec, trace_parent=_span_around())
            self._followed[session] = followed = _TracedRun(self, session.journal, tracer, session)
            followed.begin(session.journal.subscribe(followed))

    async def around_generate(
        self, journal: Journal, spec: RunSpec, driving: Coroutine[Any, Any, T]
    ) -> T:
        """Await the coroutine that drives a ``generate``, which is one trace, or part of the span around it."""
        followed: _TracedRun | None = None
        with _failures_logged(journal.run_id):
            followed = self._generate_started(journal, spec)
        if followed is None:
            return await driving
        token, error = otel_context.attach(followed.context()), None
        try:
            return await driving
        except BaseException as why:
            error = type(why).__name__
            raise
        finally:
            otel_context.detach(token)
            journal.unsubscribe(followed)
            with _failures_logged(journal.run_id):
                followed.write(followed.fold.close(spec.clock(), error))

    def _generate_started(self, journal: Journal, spec: RunSpec) -> _TracedRun | None:
        tracer = self.tracer()
        if tracer is None:
            return None
        state, followed = journal.state, _TracedRun(self, journal, tracer)
        started = RunStarted(
            at=spec.clock(),
            agent=spec.agent,
            model=spec.model_name,
            messages=list(state.messages),
            max_turns=spec.max_turns,
            trace_parent=_span_around(),
        )
        followed.begin([started])
        followed.fold.names |= dict(_names_of(state))
        journal.subscribe(followed)
        return followed

    def read_row(self, journal: Journal, events: Sequence[StoredEvent]) -> None:
        """Write the ended spans of a batch's row that another process ran."""
        with _failures_logged(journal.run_id):
            tracer = self.tracer()
            if tracer is not None:
                read = _TracedRun(self, journal, tracer)
                for event in events:
                    read.add(event, writes=True)

    # --- writing

    def writes(self, journal: Journal) -> bool:
        """Whether this process writes the spans of a run: the one that drives the run; for a batch, its own."""
        is_of_worker = journal.state.row is not None and os.getpid() != self._process
        return journal.may_drive and not is_of_worker

    def is_first(self, trace: int, span: int) -> bool:
        """Whether the span was not written before."""
        with self._lock:
            if (trace, span) in self._written:
                return False
            self._written[trace, span] = None
            if len(self._written) > MAX_WRITTEN:
                self._written.popitem(last=False)
            return True

    def tracer(self) -> Any:
        """The SDK's tracer, which takes ids for its spans; None if there is none."""
        provider = otel.get_tracer_provider() if self._provider is None else self._provider
        tracer: Any = provider.get_tracer("nbagent", str(sys.modules["nbagent"].__version__))
        if isinstance(tracer, otel.NoOpTracer):  # switched off
            return None
        for name in ("tracer", "_tracer"):  # as Logfire and the API's own proxy wrap a tracer
            tracer = tracer if hasattr(tracer, "id_generator") else getattr(tracer, name, tracer)
        if not hasattr(tracer, "id_generator"):
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "nb.trace writes no spans: no TracerProvider of the OpenTelemetry SDK is set. "
                    "Use opentelemetry.trace.set_tracer_provider"
                )
            return None
        with self._lock:
            if not isinstance(tracer.id_generator, _Ids):
                tracer.id_generator = _Ids(tracer.id_generator)
        return tracer


class _TracedRun:
    """The spans of one run, and a listener of its events."""

    def __init__(
        self, tracing: Tracing, journal: Journal, tracer: Any, session: Session | None = None
    ) -> None:
        self.fold = SpanFold(journal.run_id, has_content=tracing.has_content)
        self._tracing, self._journal, self._tracer = tracing, journal, tracer
        self._session = None if session is None else ref(session)
        self._lock = threading.RLock()
        self._early: list[Any] | None = []
        """Events that arrived before the past ones; None from then on."""
        self._around = Context()
        """The span around the run, if there is one."""
        self._root = otel.INVALID_SPAN_CONTEXT

    def __call__(self, event: RunEvent) -> None:
        """Fold an event in, and write what it ends, if this process drives the run, or stops it."""
        with self._lock:
            if self._early is not None:
                self._early.append(event)
                return
            session = None if self._session is None else self._session()
            stops = type(event) is RunCancelled and session is not None and session.is_stopping
            self.add(event, writes=stops or self._tracing.writes(self._journal))

    def begin(self, past: Iterable[RunEvent]) -> None:
        """Fold the past events in, without writing, and then those that arrived meanwhile."""
        with self._lock:
            for event in past:
                self.add(event, writes=False)
            early, self._early = self._early or [], None
            for event in early:
                self(event)

    def add(self, event: RunEvent, *, writes: bool, again: bool = False) -> int:
        """Fold an event in; returns the number of spans that were written."""
        ended = self.fold.after(event)
        if type(event) is RunStarted and not event.scope:
            self._start(event)
        return self.write(ended, again=again) if writes else 0

    def _start(self, started: RunStarted) -> None:
        """Find the trace: of the span around the run, or a new one; and whether it is sampled."""
        if started.trace_parent is not None:
            self._around = _PARENTS.extract({"traceparent": started.trace_parent}, Context())
        with _ids(self.fold.trace_id, self.fold.place(()) or 1):  # never ended, so not written
            span = self._tracer.start_span(f"invoke_agent {started.agent}", self._around)
        self._root = span.get_span_context()
        session = None if self._session is None else self._session()
        if session is not None:
            session.in_context(lambda: otel_context.attach(self.context()))

    def write(self, spans: Iterable[Span], *, again: bool = False) -> int:
        """Write spans that were not written before; all, if ``again``. Returns their number."""
        count = 0
        for one in spans:
            if not (self._tracing.is_first(self._root.trace_id, one.id) or again):
                continue
            around = self._around
            if one.parent is not None:
                parent = otel.NonRecordingSpan(self._context_of(one.parent))
                around = otel.set_span_in_context(parent, Context())
            with _ids(self._root.trace_id, one.id):
                span = self._tracer.start_span(
                    one.name,
                    around,
                    _KINDS[one.kind],
                    dict(one.attributes),
                    start_time=int(one.start * 1e9),
                )
            if one.error is not None:
                span.set_status(otel.StatusCode.ERROR)
            span.end(int(one.end * 1e9))
            count += 1
        return count

    def context(self) -> Context:
        """The context of the run's code: spans of the code belong to the call or run that makes them."""
        return otel.set_span_in_context(_CurrentSpan(self), Context())

    def current(self, scope: Scope) -> Any:
        """The context of the innermost open span at this place in the run."""
        with self._lock:
            return self._context_of(self.fold.place(scope) or self._root.span_id)

    def _context_of(self, span_id: int) -> Any:
        root = self._root
        return otel.SpanContext(
            root.trace_id,
            span_id,
            is_remote=False,
            trace_flags=root.trace_flags,
            trace_state=root.trace_state,
        )


class _CurrentSpan(otel.NonRecordingSpan):
    """The open span of the code that asks for it: the running call, or else the run."""

    def __init__(self, run: _TracedRun) -> None:
        super().__init__(otel.INVALID_SPAN_CONTEXT)
        self._run = run

    def get_span_context(self) -> Any:
        """The span's context, which the spans of libraries use as their parent."""
        return self._run.current(getattr(current_runs.get(), "scope", ()))


class _Ids:
    """An id generator of the SDK, which returns the ids of a span that this module starts."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def generate_trace_id(self) -> int:
        """The trace's id."""
        ids = getattr(_next, "ids", None)
        return int(self._original.generate_trace_id() if ids is None else ids[0])

    def generate_span_id(self) -> int:
        """The span's id."""
        ids = getattr(_next, "ids", None)
        return int(self._original.generate_span_id() if ids is None else ids[1])

    def is_trace_id_random(self) -> bool:
        """False: a trace's id is a digest."""
        return False


_next = threading.local()


@contextmanager
def _ids(trace: int, span: int) -> Iterator[None]:
    """Have the next span of this thread get these ids."""
    _next.ids = (trace, span)
    try:
        yield
    finally:
        _next.ids = None


@contextmanager
def _failures_logged(run_id: str) -> Iterator[None]:
    """Log what fails while spans are made, such as a processor of the program, so that the run continues."""
    try:
        yield
    except Exception:
        logger.exception("run %s could not be traced", run_id)


def _span_around() -> str | None:
    """The current span of the calling code as a ``traceparent``; None if there is none."""
    carrier: dict[str, str] = {}
    _PARENTS.inject(carrier)
    return carrier.get("traceparent")


def _names_of(state: RunState, scope: Scope = ()) -> Iterator[tuple[Scope, str]]:
    """The names of the open calls of a run, by their places."""
    for call in state.calls.values():
        yield (*scope, call.id), call.name
        if call.child is not None:
            yield from _names_of(call.child, (*scope, call.id))


_tracings: list[Tracing] = []
"""The tracings that are not stopped; only the last one writes spans."""


def trace(*, content: bool = False, tracer_provider: Any = None) -> Tracing:
    """Write OpenTelemetry spans of the runs of this process, by the conventions for generative AI.

    A run is a span ``invoke_agent`` (a flow: ``invoke_workflow``) with a ``chat`` for each request to the model, an
    ``execute_tool`` for each attempt at a call, and a ``wait_for_person`` for each question. A run that is
    continued by another process, which uses ``nb.trace`` too, has one trace. If a span is active where the run starts, the
    run is part of its trace. A second call replaces the first until it stops.

    Example:
            with nb.trace():
                agent.run_sync("Plan a dinner")

    Args:
        content: True to write prompts, answers, inputs and results too, each up to 10,000 characters. Secrets are
            masked.
        tracer_provider: a ``TracerProvider`` of the OpenTelemetry SDK; by default the one that is set.

    Raises:
        UsageError: an argument is not valid.
        ImportError: ``opentelemetry-api`` is not installed: ``pip install "jupyter-nbagent[otel]"``.
    """
    if content not in (True, False):
        raise UsageError(f"content must be True or False, got {content!r:.80}")
    if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
        raise UsageError(
            f"tracer_provider must be a TracerProvider of OpenTelemetry, got {tracer_provider!r:.80}"
        )
    tracing = Tracing(content=content, provider=tracer_provider)
    tracing.start()
    return tracing
