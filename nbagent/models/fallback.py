"""``nb.Fallback``: a model made of several, which are asked in order until one answers.

Each model has its own server, key, limits, prices and form of the history; here is only the decision who is asked.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, get_args

from nbagent.core.base.amounts import checked_amount
from nbagent.core.base.errors import (
    ErrorKind,
    HistoryTooLong,
    ModelConfigError,
    ModelError,
    UsageError,
    suggest,
)
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.model import (
    NOTHING,
    Citation,
    Discarded,
    Finished,
    Hosted,
    HostedCall,
    Model,
    ModelDelta,
    Notice,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    Waiting,
)
from nbagent.core.base.pickling import Made, Travels, made_anew
from nbagent.core.hooks import hooks
from nbagent.core.tools.hosted import check_hosted

Cause: TypeAlias = ErrorKind | type[Exception]
"""A kind of error, or a class of exceptions, after which the next model is asked."""
USUAL: tuple[ErrorKind, ...] = ("rate_limit", "outage", "refusal")
COOLDOWN = 30.0
"""Seconds in which a model that failed is asked after the others."""
MAX_REASON = 500
"""The maximum characters of a reason in a note."""


class Fallback(Travels):
    """A model made of several. If one cannot answer, the next one is asked.

    The next model is asked only if nothing of an answer was shown, or if the failed model discarded it. If a server
    sets a time to wait, or is asked for the third time, the next model is asked without that wait. A model that failed
    is asked after the others for a while. If no model answers, those that only had to wait are asked once more.

    Args:
        models: the models in order, each an object or a name.
        on: the kinds of errors (``nb.errors.ModelError.kind``) and classes of exceptions after which the next model
            is asked. Any other error is raised at once.

            - ``"rate_limit"``: too many requests, or no quota left
            - ``"outage"``: the server cannot be reached, is overloaded, fails, is silent, or gives no usable answer
            - ``"refusal"``: the provider's content filter rejected the request, or removed the answer
            - ``"too_long"``: the conversation is longer than the model allows
            - ``"access"``: the key is missing or rejected, or cannot use the model, or there is no such model
        cooldown: seconds in which a model that failed is asked after the others. If a server sets a longer time,
            that time counts.

    Raises:
        UsageError: there are fewer than two models, or an argument is invalid.
        ModelConfigError: a name is unknown.
    """

    @checks_keywords("nb.Fallback")
    def __init__(
        self,
        *models: str | Model,
        on: Cause | Sequence[Cause] = USUAL,
        cooldown: float = COOLDOWN,
    ) -> None:
        if len(models) < 2:
            raise UsageError(
                "nb.Fallback takes at least two models: nb.Fallback('gpt-5', 'anthropic:claude-sonnet-4-5')"
            )
        for model in models:
            if not isinstance(model, str) and not hasattr(model, "stream"):
                raise UsageError(
                    f"A model must be a name or an object with a stream method, got {model!r:.80}"
                )
        self.models: tuple[Model, ...] = tuple(
            hooks.model_named(model) if isinstance(model, str) else model for model in models
        )
        self.on = _checked_causes(on)
        self.cooldown = checked_amount("cooldown", cooldown)
        self._cooling: dict[int, _Failure] = {}
        """The last failure of each model since its last answer, by the model's position."""

    @property
    def name(self) -> str:
        """The names of the models."""
        return " or ".join(model.name for model in self.models)

    def __repr__(self) -> str:
        return f"Fallback({', '.join(repr(model.name) for model in self.models)})"

    def __reduce__(self) -> Made:
        return made_anew(Fallback, *self.models, on=self.on, cooldown=self.cooldown)

    @property
    def reports_cost(self) -> bool:
        """Whether each response has a cost, whichever model gives it."""
        return not self.unpriced

    @property
    def unpriced(self) -> str:
        """The name of the first model whose price is unknown; empty if there is none."""
        return next((m.name for m in self.models if not getattr(m, "reports_cost", False)), "")

    def check_hosted(self, tool: Hosted) -> None:
        """Check that each model has this hosted tool.

        Raises:
            UsageError: a model does not support the tool.
        """
        for model in self.models:
            check_hosted(model, [tool], ())

    def without_credentials(self, text: str) -> str:
        """Remove the credentials of all models from a text."""
        for model in self.models:
            clean = getattr(model, "without_credentials", None)
            text = text if clean is None else clean(text)
        return text

    async def stream(self, request: Request) -> AsyncGenerator[ModelDelta, None]:
        """Answer one request with the first model that can.

        Raises:
            ModelError: no model answered, or a later model failed in a way that is not in ``on``.
            Exception: the first model failed in a way that is not in ``on``.
        """
        failures: dict[int, _Failure] = {}
        asked = self._order()
        notes = self._notes_on_cooling(asked[0])
        for note in notes:
            yield note
        is_second_round = False
        while asked:
            number, *asked = asked
            may_wait = is_second_round or not asked
            attempt = _Attempt(self.models[number], self.on, notes, may_wait=may_wait)
            async with aclosing(attempt.deltas(request)) as deltas:
                async for delta in deltas:
                    yield delta
            failure = attempt.failure
            if failure is None:
                self._cooling.pop(number, None)
                return
            failures[number] = failure
            if failure.is_final:
                break
            if failure.kind not in _OF_REQUEST:
                self._cooling[number] = failure
            if not asked and not is_second_round:
                is_second_round = True
                waits = {
                    n: each.until(0) for n, each in failures.items() if each.seconds is not None
                }
                asked = sorted(waits, key=waits.__getitem__)
            if asked:
                following = self.models[asked[0]].name
                notes.append(Notice(f"{failure.reason[:MAX_REASON]}. Asked {following!r} instead."))
                yield notes[-1]
        raise _combined(list(failures.values()))

    def _order(self) -> list[int]:
        """The models' positions in the order in which they are asked."""
        now, until = time.monotonic(), {}
        for number in range(len(self.models)):
            failure = self._cooling.get(number)
            end = 0.0 if failure is None else failure.until(self.cooldown)
            until[number] = end if end > now else 0.0
        return sorted(until, key=until.__getitem__)

    def _notes_on_cooling(self, first: int) -> list[Notice]:
        failure = self._cooling.get(0)
        if first == 0 or failure is None:
            return []
        ago, name = time.monotonic() - failure.at, self.models[first].name
        return [Notice(f"{failure.reason[:MAX_REASON]} ({ago:.0f} s ago). Asked {name!r} instead.")]

    async def aclose(self) -> None:
        """Close all models."""
        for model in self.models:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """The reason why a model gave no answer to a request."""

    reason: str
    """The reason, with the model's name."""
    kind: ErrorKind | None
    seconds: float | None = None
    """The seconds for which the server accepts no request, if the model was left only because it had to wait."""
    error: Exception | None = None
    is_final: bool = False
    """Whether no other model is asked."""
    at: float = field(default_factory=time.monotonic)

    def until(self, cooldown: float) -> float:
        """The monotonic time from which the model is asked in its place again."""
        return self.at + max(cooldown, self.seconds or 0.0)


_OF_REQUEST = ("refusal", "too_long")
"""The kinds of failures that another request may not have."""


class _Attempt:
    """One model's answer to a request, or its failure."""

    def __init__(
        self, model: Model, causes: tuple[Cause, ...], notes: Sequence[Notice], *, may_wait: bool
    ) -> None:
        self._model = model
        self._causes = causes
        self._notes = notes
        """The notes before this attempt, which are repeated if a part of it is discarded."""
        self._may_wait = may_wait
        """Whether the model may wait and repeat the request, because no other model is left."""
        self._is_shown = self._has_calls = self._has_begun = False
        """Whether there is something to see, a call, and anything at all of the answer."""
        self._spent = NOTHING
        self.failure: _Failure | None = None
        """Why there is no answer; None if there is one."""

    async def deltas(self, request: Request) -> AsyncGenerator[ModelDelta, None]:
        """Yield the answer. If there is none, ``failure`` has the reason, and nothing of the attempt counts."""
        stream: Any = self._model.stream(request)
        try:
            async with aclosing(stream) if hasattr(stream, "aclose") else nullcontext():
                async for delta in stream:
                    self._look_at(delta)
                    if self.failure is not None:
                        break
                    if isinstance(delta, Finished):
                        by = delta.answered_by or self._model.name
                        yield delta._replace(answered_by=by)
                        return
                    yield delta
                    if isinstance(delta, Discarded):
                        for note in self._notes:
                            yield note
                else:
                    if not self._is_shown and "outage" in self._causes:
                        self._fail("its answer ended in the middle", "outage")
        except Exception as error:
            self._spent = getattr(error, "usage", None) or NOTHING
            kind = _kind_of(error)
            self._fail(str(error) or type(error).__name__, kind, error=error)
        failure = self.failure
        if failure is None or failure.is_final:
            return
        if self._has_begun or self._spent != NOTHING:
            yield Discarded(failure.reason, self._spent)
            for note in self._notes:
                yield note

    def _look_at(self, delta: ModelDelta) -> None:
        """Note what arrived, and whether it means that there is no answer."""
        match delta:
            case Waiting(seconds=seconds, reason=reason, kind=kind):
                if kind in self._causes and not self._may_wait:
                    when = f". It can be asked again in {seconds:,.0f} s"
                    text = f"{reason}{when if kind == 'rate_limit' else ''}"
                    self._fail(text, kind, seconds=seconds)
                return
            case Discarded(reason=reason, usage=usage):
                if "outage" in self._causes and not (self._may_wait or self._is_shown):
                    self._spent = usage
                    self._fail(reason, "outage")
                else:
                    self._is_shown = self._has_calls = self._has_begun = False
                return
            case Finished(reason=reason, usage=usage):
                why: ErrorKind = "refusal" if reason == "content_filter" else "outage"
                is_empty = not (self._is_shown or self._has_calls or reason == "length")
                if is_empty and why in self._causes:
                    self._spent = usage
                    self._fail(f"it gave no answer: no text and no call ({reason})", why)
            case ReasoningDelta(replaces_text=True):
                self._is_shown = False
            case TextDelta(text=text):
                self._is_shown = self._is_shown or not text.isspace()
            case HostedCall() | Citation():
                self._is_shown = True
            case ToolCallDelta():
                self._has_calls = True
            case _:
                pass
        self._has_begun = True

    def _fail(
        self,
        text: str,
        kind: ErrorKind | None,
        *,
        seconds: float | None = None,
        error: Exception | None = None,
    ) -> None:
        """Store the failure; another model is asked if it is one of the causes, and nothing was shown."""
        classes = tuple(cause for cause in self._causes if isinstance(cause, type))
        is_cause = kind in self._causes or isinstance(error, classes)
        name = repr(self._model.name)
        self.failure = _Failure(
            reason=(text if name in text else f"The model {name}: {text}").rstrip("."),
            kind=kind,
            seconds=seconds,
            error=error,
            is_final=self._is_shown or not is_cause,
        )


def _kind_of(error: Exception) -> ErrorKind | None:
    match error:
        case ModelError(kind=kind):
            return kind
        case ModelConfigError():
            return "access"
        case OSError():  # of a model of your own: a failed connection, or a timeout
            return "outage"
        case _:
            return None


def _combined(failures: Sequence[_Failure]) -> Exception:
    """The error after these failures: the only one, or one that names each model with its reason."""
    last = failures[-1]
    if len(failures) == 1 and last.error is not None:
        return last.error
    kinds = {failure.kind for failure in failures}
    reasons = "; ".join(f"({n}) {failure.reason}" for n, failure in enumerate(failures, 1))
    error = (HistoryTooLong if kinds == {"too_long"} else ModelError)(
        f"None of the {len(failures)} models answered. {reasons}",
        kind=kinds.pop() if len(kinds) == 1 else None,
    )
    error.usage = getattr(last.error, "usage", None) if last.is_final else None
    error.__cause__ = last.error
    return error


def _checked_causes(on: Any) -> tuple[Cause, ...]:
    causes = (on,) if isinstance(on, str | type) else on
    known = get_args(ErrorKind)
    if not isinstance(causes, Sequence) or not causes:
        raise UsageError(f"on must be one or several of {', '.join(known)}, got {on!r:.80}")
    for cause in causes:
        is_class = isinstance(cause, type) and issubclass(cause, Exception)
        if not is_class and cause not in known:
            raise UsageError(
                f"on has {cause!r:.80}. Allowed: {', '.join(known)}, and classes of exceptions{suggest(str(cause), known)}"
            )
    return tuple(causes)
