"""A model with scripted responses, for tests, notebooks and examples.

    model = nb.ScriptedModel([nb.ScriptedModel.call("get_balance", account="A1"), "You have $5."])

The model is as strict as a real server: it rejects a history with an unanswered call. ``check()`` raises
an error if steps were not used.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, get_args

from nbagent.core.base.errors import MessagesError, ModelError, UsageError
from nbagent.core.base.messages import Message, calls_of, check, dumps
from nbagent.core.base.model import (
    Discarded,
    Finished,
    FinishReason,
    ModelDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    Usage,
)

_DELTAS = get_args(ModelDelta)


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call in a script; ``raw`` is for arguments that are not a JSON object."""

    name: str
    input: dict[str, Any] = field(default_factory=dict)
    id: str | None = None
    """The call's id, ``""`` for a server without ids, or None for a generated one."""
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class Slow:
    """A text in a script that arrives in ``pieces``, with ``delay`` seconds before each piece."""

    text: str
    delay: float
    pieces: int


Item: TypeAlias = str | ScriptedCall | Slow | ModelDelta | BaseException
Step: TypeAlias = (
    Item
    | Sequence[Item]
    | Callable[[Sequence[Message]], "Item | Sequence[Item] | Awaitable[Item | Sequence[Item]]"]
)
"""One response: a text, a call, several of them, an exception to raise, deltas to send unchanged,
or a function of the messages that returns any of these (or an awaitable of it)."""


class ScriptedModel:
    """A model that answers its n-th request with the n-th of ``steps``.

    Args:
        steps: the responses, see ``Step``; one function instead of a list answers every request.
        name: the model's name for people.
        usage: the reported tokens and cost of each response; by default 0.
            ``Usage()`` simulates a server that does not report its usage.

    ``requests`` has the received requests. As a context manager, the model calls ``check()`` at the end.
    """

    def __init__(
        self,
        steps: Iterable[Step] | Callable[[Sequence[Message]], Any],
        *,
        name: str = "scripted",
        usage: Usage = Usage(cost=0.0),  # noqa: B008  a frozen value
    ) -> None:
        if isinstance(steps, str) or not (callable(steps) or isinstance(steps, Iterable)):
            raise UsageError(
                f"ScriptedModel takes a list with one step for each request: ScriptedModel([{steps!r:.80}])"
            )
        self.name = name
        self.reports_cost = usage.cost is not None
        """Whether a run with ``Budget(cost=…)`` can use this model."""
        self.requests: list[Request] = []
        self._every = steps if callable(steps) else None
        self._steps: deque[Step] = deque(() if callable(steps) else steps)
        self._usage = usage
        self._calls = 0

    @staticmethod
    def call(name: str, /, id: str | None = None, **arguments: Any) -> ScriptedCall:  # noqa: A002  reads as the call's field
        """A call of the tool ``name``; for a tool whose parameter is ``id``, use ``ScriptedCall``."""
        return ScriptedCall(name, arguments, id)

    @staticmethod
    def slow(text: str, *, delay: float = 0.0, pieces: int = 4) -> Slow:
        """A text that arrives in ``pieces``, with ``delay`` seconds before each piece."""
        return Slow(text, delay, pieces)

    def check(self) -> None:
        """Raise if steps were not used.

        Raises:
            UsageError: steps were not used; the message has their number and the first one.
        """
        if self._steps:
            raise UsageError(
                f"{len(self._steps)} steps of the model {self.name!r} were not used. The first is {self._steps[0]!r:.200}. "
                f"The run made {len(self.requests)} requests"
            )

    async def stream(self, request: Request) -> AsyncGenerator[ModelDelta, None]:
        """Answer with the next step.

        Raises:
            ModelError: the script has no more steps, or a server would reject the history.
            BaseException: the step's exception.
        """
        self.requests.append(request)
        _check(self.name, request)
        finished: Finished | None = None
        calls = 0
        for item in await self._next(request):
            async for delta in self._play(calls, item):
                finished = delta if isinstance(delta, Finished) else None
                if isinstance(delta, Discarded):
                    calls = 0
                elif isinstance(delta, ToolCallDelta):
                    calls = max(calls, delta.index + 1)
                yield delta
        if finished is None:
            reason: FinishReason = "tool_calls" if calls else "stop"
            yield Finished(reason, self._usage, self.name)

    async def _next(self, request: Request) -> Sequence[Item]:
        step: Any = self._every
        if step is None:
            if not self._steps:
                raise ModelError(
                    f"The model {self.name!r} has no step for request {len(self.requests)}. Add a step to ScriptedModel"
                )
            step = self._steps.popleft()
        if callable(step) and not isinstance(step, type):
            step = step(request.messages)
        if inspect.isawaitable(step):
            step = await step
        if isinstance(step, type) and issubclass(step, BaseException):
            step = step()
        return step if isinstance(step, list | tuple) else (step,)

    async def _play(self, index: int, item: Item) -> AsyncIterator[ModelDelta]:
        match item:
            case str():
                yield TextDelta(item)
            case ScriptedCall():
                self._calls += 1
                call_id = f"call_{self._calls}" if item.id is None else item.id
                arguments = dumps(item.input) if item.raw is None else item.raw
                yield ToolCallDelta(index, arguments, call_id, item.name)
            case Slow(text=text):
                size = max(1, -(-len(text) // max(1, item.pieces)))
                for start in range(0, len(text), size):
                    await asyncio.sleep(item.delay)
                    yield TextDelta(text[start : start + size])
            case BaseException():
                raise item
            case _ if isinstance(item, _DELTAS):
                yield item
            case _:
                raise UsageError(
                    f"{item!r:.80} is not a step of a ScriptedModel. Expected a string, ScriptedModel.call(…), "
                    "ScriptedModel.slow(…), a delta, an exception, a list of these or a function of the messages"
                )

    async def aclose(self) -> None:
        """Do nothing; the protocol of models requires this method."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            self.check()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self.__exit__(kind)


def _check(name: str, request: Request) -> None:
    problem = ""
    if not request.messages:
        problem = "there is no message"
    else:
        last = request.messages[-1]
        try:
            check(request.messages)
            dumps(request.messages)
        except (MessagesError, TypeError, ValueError) as error:
            problem = str(error)
        open_calls = calls_of(last) if last["role"] == "assistant" else []
        if open_calls:
            problem = f"the calls {[c['id'] for c in open_calls]!r} have no result"
    names = [tool.name for tool in request.tools]
    if len(set(names)) != len(names):
        problem = f"two tools have the same name: {names!r}"
    if problem:
        raise ModelError(f"The model {name!r} rejected the request: {problem}")
