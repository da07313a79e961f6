"""The request for a model response, and the response assembled from its deltas."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import fields, replace
from operator import itemgetter
from time import monotonic
from typing import Any, Literal, TypeAlias, assert_never

from pydantic import ValidationError

from nbagent.core.base.calls import CallPart, put_together
from nbagent.core.base.errors import MessagesError, ModelError, NbagentError
from nbagent.core.base.events import CallRequested, HostedRan, ModelPartial, ModelResponded
from nbagent.core.base.file_parts import check_file
from nbagent.core.base.messages import dumps, freeze, object_in, storable, without_cut_off
from nbagent.core.base.model import (
    NOTHING,
    Citation,
    Discarded,
    Finished,
    FinishReason,
    HostedCall,
    ModelDelta,
    Notice,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallDelta,
    Usage,
    Waiting,
)
from nbagent.core.base.secrets import MASK, without_secrets
from nbagent.core.journal.journal import AnyJournal
from nbagent.core.tools.hosted import allowed
from nbagent.core.tools.instructions import RunView, instructions_of
from nbagent.core.tools.json_schema import with_texts_read
from nbagent.core.tools.spec import RunSpec
from nbagent.core.tools.tool import Tool

KEPT_EVERY = 2.0
"""Seconds after which streamed text is stored, in case the process ends."""
Keep: TypeAlias = Callable[[ModelPartial], Awaitable[bool]]
"""A function that stores a part of a response. After it returns False, the next part repeats this text."""


async def respond(
    spec: RunSpec,
    journal: AnyJournal,
    scope: tuple[str, ...],
    collected: Collected,
    keep: Keep | None = None,
    is_used_up: Callable[[Usage], object] | None = None,
) -> ModelResponded | None:
    """Ask the model for its next message; ``collected`` receives the response, also if it is cut off.

    Return what is known of a discarded response if ``is_used_up`` forbids another request after its usage.

    ``keep`` stores the text received so far, every ``KEPT_EVERY`` seconds.

    Raises:
        ModelError: the model failed, or its response is incomplete or empty.
        RunError: the instructions could not be made.
    """
    run = RunView(journal.run_id, journal.state.messages, spec.context)
    request = Request(
        messages=without_cut_off(journal.state.messages),
        instructions=await instructions_of(spec.instructions, run),
        tools=tuple(tool.spec for tool in spec.tools.values()),
        output_schema=spec.answer.schema,
        stream=bool(journal.listeners),
        hosted=allowed(spec.hosted, spec.policy, spec.above) if spec.hosted else (),
    )
    try:
        assert spec.model is not None  # a flow never calls a model
        if spec.history is None:
            stream: Any = spec.model.stream(request)
        else:
            from .sent_history import answered  # noqa: PLC0415 - few agents shorten the history

            stream = answered(spec.model, spec.history, request)
        due = monotonic() + KEPT_EVERY
        # an iterator that is no generator has nothing to close
        async with aclosing(stream) if hasattr(stream, "aclose") else nullcontext():
            async for delta in stream:
                collected.add(delta)
                journal.emit(collected.public(delta))
                if (
                    type(delta) is Discarded
                    and is_used_up is not None
                    and is_used_up(collected.spent)
                ):
                    return collected.cut_off(spec.clock(), "failed", scope=scope)
                if keep is not None and monotonic() >= due:
                    partial = collected.partial(spec.clock())
                    if partial is not None and await keep(partial):
                        collected.mark_kept()
                    due = monotonic() + KEPT_EVERY
    except NbagentError as error:
        if isinstance(error, ModelError) and error.usage is not None:
            collected.spent += error.usage
        raise
    except Exception as error:
        raise ModelError(f"{type(error).__name__}: {error}") from error
    response = collected.event(spec.clock(), journal.state.used_ids, scope=scope)
    if not (response.calls or response.hosted or response.text.strip()):
        reason = response.finish_reason
        raise ModelError(
            f"The model {spec.model_name!r} gave no answer: no text and no call ({reason})"
        )
    return response


MAX_RESPONSE = 16_000_000
"""Maximum characters of a response, including its calls."""
CUT: Collection[FinishReason] = ("length", "content_filter")
"""The finish reasons of a response that is cut off."""
CALL_SIZE = 500
"""The size of a call without its arguments, in characters."""
MAX_HOSTED = 1_000
"""Maximum calls of hosted tools in one response."""
MAX_CITATIONS = 500
"""Maximum citations of one response; further citations are not stored."""


class Collected:
    """A model response, assembled from deltas; ``tools`` are the tools that it may call."""

    def __init__(self, tools: Mapping[str, Tool[..., Any]], spent: Usage = NOTHING) -> None:
        self._tools = tools
        self.spent = spent
        """The usage of discarded attempts."""
        self._size = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, list[Any]] = {}
        self._notes: dict[str, None] = {}
        """The distinct notes, in order."""
        self._hosted: dict[str, HostedRan] = {}
        """Hosted calls by the provider's id."""
        self._citations: dict[Citation, None] = {}
        self._finished: Finished | None = None
        self._kept_so_far = (0, 0)
        """The number of stored pieces of text and of reasoning."""
        self._discarded = ""
        """The text from before the connection was lost; it counts until new text arrives."""

    def add(self, delta: ModelDelta) -> None:
        """Add one more delta.

        Raises:
            ModelError: the response is longer than ``MAX_RESPONSE``, or a delta is invalid.
        """
        _check_texts(delta)
        match delta:
            case TextDelta(text=text):  # first, because most deltas are text
                self._text.append(text)
                self._size += len(text)
            case ReasoningDelta():
                self._add_reasoning(delta)
            case ToolCallDelta():
                if delta.index not in self._calls:
                    self._size += CALL_SIZE
                self._size += len(delta.arguments)
                call = self._calls.setdefault(delta.index, [None, None, [], None])
                call[0] = call[0] or delta.id
                call[1] = call[1] or delta.name
                call[2].append(delta.arguments)
                if delta.provider is not None:
                    call[3] = self._kept(delta.provider)
            case HostedCall() | Citation():
                self._add_hosted(delta)
            case Discarded(usage=usage):
                text = "".join(self._text) or self._discarded
                self.__init__(self._tools, self.spent + usage)  # type: ignore[misc]
                self._discarded = text
            case Notice(text=text):
                self._notes[text] = None
                self._size += len(text)
            case Waiting():
                pass  # only for listeners
            case Finished(provider=provider):
                own = None if provider is None else self._kept(provider)
                self._finished = delta._replace(provider=own)
            case never:
                assert_never(never)
        if self._size > MAX_RESPONSE:
            raise ModelError(f"The model's response is longer than {MAX_RESPONSE:,} characters")

    def _add_reasoning(self, delta: ReasoningDelta) -> None:
        if delta.replaces_text:
            self._size -= sum(map(len, self._text))
            self._text, self._kept_so_far = [], (0, 0)
        self._reasoning.append(delta.text)
        self._size += len(delta.text)

    def _add_hosted(self, delta: HostedCall | Citation) -> None:
        if isinstance(delta, HostedCall):
            self._hosted[delta.id] = self._ran(delta)
            if len(self._hosted) > MAX_HOSTED:
                raise ModelError(f"The model's response has more than {MAX_HOSTED:,} hosted calls")
        elif len(self._citations) < MAX_CITATIONS:
            self._citations[delta] = None
            self._size += len(delta.title) + len(delta.url)
        else:
            self._notes[f"Only the first {MAX_CITATIONS} sources of this answer are stored."] = None

    def _ran(self, delta: HostedCall) -> HostedRan:
        """A hosted call as it is stored; each report of progress adds to the size.

        Raises:
            ModelError: the call is not JSON, or a value has a wrong type.
        """
        values = {one.name: getattr(delta, one.name) for one in fields(HostedRan)}
        try:
            ran = HostedRan(**self._kept(values))
            for file in ran.files:
                check_file(file, "its files")
        except (ValidationError, MessagesError) as error:
            raise ModelError(f"The model reported an invalid hosted call: {error}") from error
        return replace(ran, input=freeze(ran.input))

    def _kept(self, provider: Any) -> Any:
        """A provider's data in the form that a journal stores; adds to the size.

        Raises:
            ModelError: the data is not JSON.
        """
        try:
            kept = storable(provider)
            self._size += len(dumps(kept))
        except (TypeError, ValueError) as error:
            raise ModelError(f"The model's provider data is not JSON: {error}") from error
        return kept

    def public(self, delta: ModelDelta) -> ModelDelta:
        """The delta for listeners, without possible secrets of a call in progress."""
        if type(delta) is TextDelta or not isinstance(delta, Finished | ToolCallDelta):
            return delta
        if delta.provider is not None:
            delta = delta._replace(provider=None)
        if isinstance(delta, Finished):
            return delta
        if not delta.arguments:
            return delta
        name = self._calls[delta.index][1]
        called = [self._tools.get(name)] if name else self._tools.values()
        is_plain = all(tool is None or tool.secrets is None for tool in called)
        return delta if is_plain else delta._replace(arguments="")

    def event(
        self, at: float, used_ids: Collection[str], *, scope: tuple[str, ...]
    ) -> ModelResponded:
        """The complete response.

        Args:
            at: the time of its completion, in Unix seconds.
            used_ids: the call ids that the history has already.
            scope: the calls that lead to the run.

        Raises:
            ModelError: the stream ended without ``Finished``, or its calls cannot be told apart.
        """
        if self._finished is None:
            raise ModelError("The model's stream ended before the response was complete")
        usage = self.spent + self._finished.usage
        calls = self._requested(used_ids, broke_off=self._finished.reason in CUT)
        return ModelResponded(
            at=at,
            scope=scope,
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=calls,
            finish_reason=self._finished.reason,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost=usage.cost,
            cached_tokens=usage.cached,
            reasoning_tokens=usage.reasoning,
            provider=self._public(self._finished.provider, calls),
            notes=tuple(self._notes),
            hosted=tuple(self._hosted.values()),
            citations=self._cited(),
            model=self._finished.answered_by,
        )

    def partial(self, at: float) -> ModelPartial | None:
        """The response since ``mark_kept``; None if there is nothing new."""
        texts, reasonings = self._kept_so_far
        text, reasoning = "".join(self._text[texts:]), "".join(self._reasoning[reasonings:])
        if not text and not reasoning:
            return None
        return ModelPartial(
            at=at, text=text, reasoning=reasoning, anew=(texts, reasonings) == (0, 0)
        )

    def mark_kept(self) -> None:
        """Mark the response so far as stored."""
        self._kept_so_far = (len(self._text), len(self._reasoning))

    def cut_off(
        self, at: float, why: Literal["stopped", "failed"], *, scope: tuple[str, ...]
    ) -> ModelResponded | None:
        """The visible part of a response that was cut off, and the usage of discarded attempts; None if there is none.

        Its calls are incomplete, and its own token usage is unknown, so both are left out.
        """
        text, reasoning = "".join(self._text) or self._discarded, "".join(self._reasoning)
        if not text and not reasoning and self.spent == NOTHING:
            return None
        return ModelResponded(
            at=at,
            scope=scope,
            text=text,
            reasoning=reasoning,
            notes=tuple(self._notes),
            hosted=tuple(self._hosted.values()),
            citations=self._cited(),
            cut=why,
            input_tokens=self.spent.input_tokens,
            output_tokens=self.spent.output_tokens,
            cost=self.spent.cost,
        )

    def _cited(self) -> tuple[dict[str, str], ...]:
        return tuple({"title": one.title, "url": one.url} for one in self._citations)

    def _public(self, provider: Any, calls: Collection[CallRequested]) -> Any:
        """A provider's data of the whole response. The data repeats the calls, so the secrets of calls are removed."""
        if provider is None or "data" not in provider:
            return provider
        data = provider["data"]
        for call in calls:
            tool = self._tools.get(call.name)
            if tool is not None and tool.secrets is not None:
                data = _without_secrets(data, None if call.raw is not None else call.input)
        rest = {key: value for key, value in provider.items() if key != "data"}
        return rest if data is None else {**rest, "data": data}

    def _requested(
        self, used_ids: Collection[str], *, broke_off: bool
    ) -> tuple[CallRequested, ...]:
        seen = set(used_ids)
        requested = []
        found = list(map(self._calls.__getitem__, sorted(self._calls)))
        ids = set(map(_ID, found))
        is_plain = all(ids) and len(ids) == len(found)
        if not (all(map(_NAME, found)) and (is_plain or len(found) == 1)):
            found = _joined(found)
        for call_id, name, pieces, own in found:
            own_id = call_id
            if not call_id or call_id in seen:
                call_id = f"call_{secrets.token_hex(8)}"  # noqa: PLW2901 - made unique here
            seen.add(call_id)
            raw = "".join(pieces)
            # empty arguments are an empty input, unless the response was cut off before them
            input_ = None if broke_off and raw.strip() in ("", "null") else object_in(raw)
            tool = self._tools.get(name)
            if tool is not None:
                if input_ and _IN_TEXT.search(raw):
                    input_ = with_texts_read(tool.input_schema, input_)
                if tool.secrets is not None:
                    input_, raw = tool.sealed(input_), MASK
            is_plain = tool is None or tool.secrets is None
            requested.append(
                CallRequested(
                    id=call_id,
                    name=name,
                    input=freeze(input_ or {}),
                    raw=raw if input_ is None else None,
                    final=tool is not None and tool.options.final,
                    server_id=own_id if own_id and own_id != call_id else None,
                    provider=own if is_plain else _without_secrets(own, input_),
                )
            )
        return tuple(requested)


_ID, _NAME = itemgetter(0), itemgetter(1)
_IN_TEXT = re.compile(r'"\s*[\[{]')
"""A string in JSON that may itself be a list or an object."""


def _joined(found: list[list[Any]]) -> list[list[Any]]:
    """Calls without repetitions, in the same form: id, name, pieces of arguments, provider data.

    Raises:
        ModelError: the calls cannot be told apart.
    """
    try:
        calls = put_together([CallPart(i, name, "".join(pieces)) for i, name, pieces, _ in found])
    except ValueError as error:
        raise ModelError(f"The model's calls were not run, because {error}") from None
    joined = []
    for arguments, places in calls:
        own = next((found[n][3] for n in reversed(places) if found[n][3] is not None), None)
        joined.append([*found[places[0]][:2], [arguments], own])
    return joined


_TEXTS: dict[type, tuple[str, ...]] = {
    TextDelta: ("text",),
    ReasoningDelta: ("text",),
    Notice: ("text",),
    ToolCallDelta: ("arguments", "id", "name"),
    Citation: ("title", "url"),
    HostedCall: ("id",),
    Finished: ("reason", "answered_by"),
}
"""The fields of each delta that must be strings; deltas are not validated when they are made."""
_MAY_MISS = ("id", "name", "answered_by")


def _check_texts(delta: ModelDelta) -> None:
    """Check a delta's strings, because other values would make the journal unreadable."""
    if type(delta) is TextDelta and type(delta.text) is str:
        return
    for name in _TEXTS.get(type(delta), ()):
        value = getattr(delta, name)
        if not isinstance(value, str) and not (value is None and name in _MAY_MISS):
            raise ModelError(
                f"The model sent {value!r:.80} as {name!r} of a {delta.type}, expected a string"
            )


def _without_secrets(provider: Any, sealed: Any) -> Any:
    """The provider data of a call without the secrets of its input; None for a call with unreadable arguments."""
    if sealed is None:
        return None
    match provider:
        case str():
            return without_secrets(provider, sealed)
        case dict():
            return {key: _without_secrets(value, sealed) for key, value in provider.items()}
        case list():
            return [_without_secrets(value, sealed) for value in provider]
        case _:
            return provider
