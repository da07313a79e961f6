"""One running call of a server's tool: the server's questions, progress and log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote

import mcp_types as types

from nbagent.core.agent import Agent
from nbagent.core.base.addresses import host_of
from nbagent.core.base.errors import McpError, Rejected
from nbagent.core.base.interrupts import ASKS_OUTSIDE
from nbagent.core.base.metadata import Ask, Confirm
from nbagent.core.base.model import Model
from nbagent.core.call.setup import current_runs
from nbagent.core.hooks import hooks
from nbagent.core.tools.call_output import CallOutput
from nbagent.core.tools.context import ToolContext
from nbagent.core.tools.json_schema import SchemaAdapter

from .sign_in import SignInQuestion

T = TypeVar("T")
Asked: TypeAlias = types.ElicitRequestParams | types.CreateMessageRequestParams | SignInQuestion
"""A server's request to a person or a model, or a sign-in before a call."""
Answer: TypeAlias = types.ElicitResult | types.CreateMessageResult | types.ErrorData | str
"""The answer to a request; for a sign-in, the pasted text."""

MAX_QUESTIONS = 20
"""Questions of one call."""
MAX_MESSAGE = 2_000
"""Characters of a question, a log line, or a progress message."""
MAX_PROMPT = 19_000
"""Characters that a server may send to the model in one request; the approval shows all of them."""
MAX_LINES = 1_000
"""Log lines of one call."""
MIN_PROGRESS_INTERVAL = 0.05
"""Seconds between two progress messages, so that a server cannot flood the card."""
GRACE = 2.0
"""Seconds in which an abandoned call can notify the server."""

current: ContextVar[McpExchange | None] = ContextVar("nbagent_mcp_exchange", default=None)
"""The call that the running code belongs to; None if the transport cannot identify the call."""


class Times(NamedTuple):
    """Time limits of a call, in seconds; waiting for a person does not count."""

    silent: float
    """Seconds without a message from the server."""
    total: float
    """Seconds in total, even if the server reports progress."""


class TooLate(McpError):
    """The server has exceeded a time limit of a call."""


class McpExchange:
    """One running call. Without ``model``, the server may not ask a model."""

    def __init__(
        self,
        ctx: ToolContext,
        output: CallOutput | None,
        server: str,
        times: Times,
        model: Model | str | None = None,
    ) -> None:
        self.run = (ctx.run_id, *current_runs.get().scope[:-1])
        """The run of the call: the outermost run's id, and the ids of the calls that lead to the run."""
        self.asks_since: float | None = None
        """The loop's time since which a question is open; None if none is open."""
        self._model = model
        self._ctx = ctx
        self._output = output
        self._server = server
        self._times = times
        self._loop = asyncio.get_running_loop()
        self._wakeup = asyncio.Event()
        self._asked: deque[tuple[tuple[Asked, str], asyncio.Future[Answer | None]]] = deque()
        self._open = 0
        """The number of open questions."""
        self._questions = 0
        self._lines = 0
        self._shown_at = 0.0
        self._end = self._loop.time() + times.total
        self._pauses = 0
        """The number of reasons for which the time limits are paused."""
        self._paused_since = 0.0
        self._failure = ""
        self._restart_silence_timer()

    # --- from the server, on its connection

    async def ask(self, params: Asked, *, note: str = "") -> Answer | None:
        """Ask a person a question of the server; return the answer, or None if the call ends first."""
        answer: asyncio.Future[Answer | None] = self._loop.create_future()
        self._asked.append(((params, note), answer))
        self._wakeup.set()
        self._open += 1
        self.asks_since = self.asks_since or self._loop.time()
        try:
            return await answer
        finally:
            self._open -= 1
            if not self._open:
                self.asks_since = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the call's time limits, because the server does not have the call yet or may wait for a person."""
        if not self._pauses:
            self._paused_since = self._loop.time()
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._end += self._loop.time() - self._paused_since
                self._restart_silence_timer()
                self._wakeup.set()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Show the server's progress."""
        self._restart_silence_timer()
        now = self._loop.time()
        fraction = progress / total if total else None
        if now - self._shown_at >= MIN_PROGRESS_INTERVAL or (
            fraction is not None and fraction >= 1
        ):
            self._shown_at = now
            text = (message or "")[:MAX_MESSAGE] or ("" if total else f"{progress:g}")
            self._ctx.progress(fraction, text)

    def fail(self, why: str) -> None:
        """End the call with this error, because no answer will arrive."""
        self._failure = why
        self._wakeup.set()

    def log(self, text: str) -> None:
        """Show a log line of the server."""
        self._restart_silence_timer()
        self._lines += 1
        if self._output is None or self._lines > MAX_LINES:
            return
        more = (
            "\n… further log lines of the server are left out" if self._lines == MAX_LINES else ""
        )
        self._output.write("log", f"{text[:MAX_MESSAGE]}{more}\n")

    # --- of the body

    async def wait(self, sent: Coroutine[Any, Any, T]) -> T:
        """Wait for the server's result, and meanwhile ask a person the server's questions.

        Raises:
            TooLate: the call exceeds a time limit.
            McpError: ``fail`` was called.
        """
        outer = current.set(self)
        task = self._loop.create_task(sent)
        current.reset(outer)
        task.add_done_callback(lambda _: self._wakeup.set())
        self._restart_silence_timer()
        try:
            while not task.done():
                if self._asked:
                    await self._answer(*self._asked.popleft(), task)
                    continue
                self._wakeup.clear()
                if self._failure:
                    raise McpError(
                        f"{self._server} {self._failure}. The call may or may not have taken effect"
                    )
                now = self._loop.time()
                left = None if self._pauses else min(self._until, self._end) - now
                if left is not None and left <= 0:
                    raise self._too_late(now)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wakeup.wait(), left)
            return task.result()
        finally:
            for _, answer in self._asked:
                _leave(answer)
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=GRACE)
            if task.done() and not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log the error

    def _too_late(self, now: float) -> TooLate:
        """The error for an exceeded time limit, with the option that waits longer."""
        reason, option = f"sent nothing for {_seconds(self._times.silent)}", "timeout"
        if now >= self._end:
            reason = f"sent no result within {_seconds(self._times.total)}"
            option = "max_total_timeout"
        return TooLate(
            f"it {reason}, so nbagent stopped waiting for the call. The call may or may not have taken effect. To wait longer, "
            f"use nb.mcp(…, {option}=…). The next call reconnects"
        )

    async def answer(self, params: Asked, note: str = "") -> Answer:
        """Ask a person, and return the answer in the protocol's form."""
        self._questions += 1
        if self._questions > MAX_QUESTIONS:
            self.log(
                f"{self._server} asked more than {MAX_QUESTIONS} questions; this one was declined"
            )
            return types.ElicitResult(action="decline")
        try:
            with self.paused():
                if isinstance(params, SignInQuestion):
                    asked = {"message": params.message, "sign_in": params.link}
                    answer = await self._ctx.ask(asked, reply=params.reply)
                    return str(answer.address.get_secret_value())
                if isinstance(params, types.CreateMessageRequestParams):
                    return await self._sampled(params, note)
                name = f"{self._server[:1].upper()}{self._server[1:]}"
                heading = f"{name} asks{note}: {params.message[:MAX_MESSAGE]}"
                if isinstance(params, types.ElicitRequestURLParams):
                    return await self._ask_to_open(params, heading)
                return await self._filled(params, heading)
        except Rejected:
            return types.ElicitResult(action="decline")

    async def _answer(
        self,
        question: tuple[Asked, str],
        answer: asyncio.Future[Answer | None],
        task: asyncio.Task[Any],
    ) -> None:
        """Ask a person while the server waits; the end of the call also ends the question."""
        if not self._ctx.is_live:
            _leave(answer, CANCEL)
            if isinstance(question[0], SignInQuestion):
                raise McpError(
                    f"{question[0].message}. This tool call cannot wait for your sign-in. In a notebook, sign in first with `await server.connect()`"
                )
            message = getattr(question[0], "message", None)
            asked = repr(message[:200]) if message else "of a model"
            raise McpError(
                f"{self._server} asked a question during this call ({asked}). This call cannot be paused "
                "and continued later. Use agent.run(…), which waits for the answer"
            )
        await self._ctx.step(ASKS_OUTSIDE, lambda: None)
        asking = self._loop.create_task(self.answer(*question))
        try:
            await asyncio.wait({asking, task, answer}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                result = asking.result()
                if not answer.done():
                    answer.set_result(result)
        finally:
            _leave(answer)
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})

    async def _filled(
        self, params: types.ElicitRequestFormParams, heading: str
    ) -> types.ElicitResult:
        schema = dict(params.requested_schema)
        try:  # in a thread, so that the loop is not blocked
            misfit = await asyncio.to_thread(hooks.schema_misfit, schema, as_input=True)
        except (ValueError, RecursionError) as error:
            misfit = str(error)
        if misfit:
            self.log(f"{self._server} asked with an invalid schema: {misfit}")
            return types.ElicitResult(action="cancel")
        if not schema.get("properties"):
            await self._ctx.ask(Confirm(heading))
            return types.ElicitResult(action="accept", content={})
        reply: Any = SchemaAdapter(schema)
        content = await self._ctx.ask(Ask(heading), reply=reply)
        return types.ElicitResult(action="accept", content=content)

    async def _ask_to_open(
        self, params: types.ElicitRequestURLParams, heading: str
    ) -> types.ElicitResult:
        """Ask a person to open a page."""
        host = host_of(params.url)
        if host is None or len(params.url) > MAX_MESSAGE:
            self.log(
                f"{self._server} asked to open an address that is not a web page; it was declined"
            )
            return types.ElicitResult(action="decline")
        url = quote(params.url, safe=":/?#@!$&'*+,;=%~.-_")
        text = f"{heading}\n\nIt asks you to open a page of {host}: {url}\n\nApprove when you are done."
        await self._ctx.ask(Confirm(text))
        return types.ElicitResult(action="accept")

    async def _sampled(self, params: types.CreateMessageRequestParams, note: str) -> Answer:
        """Ask the model for the server, in an inner run: the call shows it, and the outer run's budget includes it."""
        if self._model is None:
            return types.ErrorData(code=types.INVALID_REQUEST, message="Sampling not supported")
        turns = [(one.role, _text_of(one.content)) for one in params.messages]
        prompt = turns[0][1] if len(turns) == 1 else "\n\n".join(": ".join(one) for one in turns)
        system = params.system_prompt or ""
        if len(prompt) + len(system) > MAX_PROMPT or not prompt.strip():
            return types.ErrorData(
                code=types.INVALID_PARAMS, message="no prompt, or it is too long"
            )
        agent = Agent(self._model, name="sampling", instructions=system or None, max_turns=1)
        question = f"{self._server[:1].upper()}{self._server[1:]} asks to use the model"
        instructions_text = (
            f"with these instructions: {system}\n\nand this prompt: " if system else ""
        )
        try:
            await self._ctx.ask(
                Confirm(f"{question} {agent.model.name}{note}: {instructions_text}{prompt}")
            )
            result = await agent.run(prompt)
        except Rejected:
            return types.ErrorData(code=-1, message="User rejected sampling request")
        text = types.TextContent(type="text", text=result.text)
        return types.CreateMessageResult(role="assistant", content=text, model=agent.model.name)

    def _restart_silence_timer(self) -> None:
        self._until = self._loop.time() + self._times.silent


def _seconds(count: float) -> str:
    return f"{count:g} second{'' if count == 1 else 's'}"


def _text_of(content: Any) -> str:
    """The text of a server's message to a model; for other parts, their kind."""
    parts = content if isinstance(content, list) else [content]
    return "\n".join(getattr(one, "text", None) or f"[{one.type}]" for one in parts)


CANCEL = types.ElicitResult(action="cancel")
"""The answer to a question that no person was asked."""


def _leave(answer: asyncio.Future[Answer | None], instead: Answer | None = None) -> None:
    """End a question without a person's answer, because the question's call ends."""
    if not answer.done():
        answer.set_result(instead)
