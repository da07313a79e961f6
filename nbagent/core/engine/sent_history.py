"""What a model receives of a long history. The journal has all of it: only requests are shortened.

Results are left out oldest first, then whole turns. The last message of a person is always there, and so is a call
with its result. The limit is passed in steps, to three quarters of it, so that the beginning of a request stays the
same for several requests, which a provider's cache needs.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from itertools import accumulate
from typing import Any, NamedTuple

from nbagent.core.base.amounts import counted
from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import HistoryTooLong, MessagesError, ModelError, RunError
from nbagent.core.base.messages import (
    Message,
    Part,
    check,
    dumps,
    is_prompt,
    load,
    message,
    text_part,
    user,
)
from nbagent.core.base.model import (
    NOTHING,
    Finished,
    Model,
    ModelDelta,
    Notice,
    Request,
    TextDelta,
    Usage,
    Waiting,
)
from nbagent.core.tools.kept_history import KeptHistory

BYTES_OF_TOKEN = 4
"""Bytes of UTF-8 that count as one token. Only the model's server knows the real number."""
IMAGE_TOKENS = 1_500
"""The assumed tokens of a picture."""
SMALL_RESULT = 100
"""Tokens of a result that is always sent, because it is hardly longer than the note in its place."""
MAX_TRIES = 5
"""Maximum number of requests with a shorter and shorter history."""
SMALL_PART = 2_000
"""Characters of a part that is not divided, though a model refuses to summarize it."""
MAX_SUMMARIES = 256
"""Maximum number of summaries that are remembered; later ones replace the oldest."""

_SUMMARIZE = (
    "Summarize this beginning of a conversation for the assistant, who will receive only your summary of it. Keep "
    "facts, numbers, names, decisions and open questions, and say which tools were called and what they changed. "
    "Write at most 400 words."
)
_SUMMARY = "Summary of the earlier conversation, written by a model:\n{text}"
_LEFT_OUT = (
    "[Left out of this request, because the conversation is long: a result of {n} characters]"
)


async def answered(
    model: Model, history: Any, request: Request
) -> AsyncGenerator[ModelDelta, None]:
    """Yield the model's answer to a request with the part of the history that it receives.

    Raises:
        RunError: the function failed, or returned an invalid history.
        ModelError: as the model.
    """
    if isinstance(history, KeptHistory):
        deltas = _of_kept(model, history, request)
    else:
        messages = await _chosen(history, request.messages)
        deltas = _deltas(model, request._replace(messages=messages))
    async with aclosing(deltas):
        async for delta in deltas:
            yield delta


async def _of_kept(
    model: Model, history: KeptHistory, request: Request
) -> AsyncGenerator[ModelDelta, None]:
    refused: HistoryTooLong | None = None
    sent, spent = 0, NOTHING
    for _ in range(MAX_TRIES):
        limits = [n for n in (history.tokens, history.refused.get(model.name)) if n is not None]
        cut = _cut(request.messages, history.turns, min(limits, default=None))
        if refused is not None and cut.tokens >= sent:
            break  # what is left cannot be made shorter
        sent, messages, summary = cut.tokens, cut.messages, None
        if history.summary is not False and cut.steps:
            writer = model if history.summary is True else history.summary
            summary, used = await _summary(writer, history.summaries, request.messages, cut)
            spent += used
            messages = _with_summary(messages, cut.head, summary)
        note = cut.note(summary) if cut.is_news or refused is not None else ""
        shown = _Answer(note, spent)
        try:
            async with aclosing(_deltas(model, request._replace(messages=messages))) as deltas:
                async for delta in deltas:
                    for one in shown.with_note(delta):
                        yield one
        except ModelError as error:
            if spent != NOTHING:
                error.usage = spent if error.usage is None else spent + error.usage
            if shown.has_begun or not isinstance(error, HistoryTooLong):
                raise
            refused = error
            history.refused[model.name] = max(1, cut.tokens * 2 // 3)
        else:
            return
    assert refused is not None  # the first of several tries
    raise refused


class _Answer:
    """The deltas of an answer, with a note before its first one and with what a summary has used."""

    def __init__(self, note: str, spent: Usage) -> None:
        self.has_begun = False
        self._note = note
        self._spent = spent

    def with_note(self, delta: ModelDelta) -> Sequence[ModelDelta]:
        if isinstance(delta, Waiting | Notice):
            return (delta,)
        first = () if self.has_begun or not self._note else (Notice(self._note),)
        self.has_begun = True
        if isinstance(delta, Finished):
            delta = delta._replace(usage=self._spent + delta.usage)
        return (*first, delta)


async def _deltas(model: Model, request: Request) -> AsyncGenerator[ModelDelta, None]:
    stream: Any = model.stream(request)
    try:
        async for delta in stream:
            yield delta
    finally:
        if hasattr(stream, "aclose"):
            await stream.aclose()


async def _chosen(function: Callable[..., Any], messages: Sequence[Message]) -> Sequence[Message]:
    """The messages that a function chose.

    Raises:
        RunError: the function failed, or half of a call and its result is missing.
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        found = function([*messages])
        if inspect.isawaitable(found):
            found = await found
    except Exception as error:
        raise RunError(
            f"The history function failed: {name} raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Sequence) or isinstance(found, str | bytes):
        raise RunError(
            f"The history function {name} must return messages in a list, got {type(found).__name__}"
        )
    try:
        chosen = load(found)
        check((*chosen, _END))  # so that the last calls need results too
    except (MessagesError, TypeError) as error:
        raise RunError(
            f"The history function {name} must return messages that a model accepts: {error}. Keep or leave out a call and "
            "its result together"
        ) from error
    if not chosen:
        raise RunError(f"The history function {name} must return at least one message, got none")
    return chosen


_END = user("")


# --- what is left out


class _Block(NamedTuple):
    """A turn, with the messages of the person before it; the last one may have no answer yet."""

    messages: tuple[Message, ...]
    prompts: int
    """The number of messages of the person at its beginning."""

    @property
    def is_turn(self) -> bool:
        return len(self.messages) > self.prompts


class Cut(NamedTuple):
    """A history as a model receives it."""

    messages: tuple[Message, ...]
    tokens: int
    """The estimated tokens of ``messages``."""
    head: int
    """The number of system messages at the beginning."""
    steps: tuple[int, ...]
    """The numbers of messages that were left out at the beginning after each step."""
    turns: int
    """The number of turns that are left out."""
    results: int
    """The number of results that are left out of the other turns."""
    is_news: bool
    """Whether something is left out that the request before had, or the person has just written."""

    def note(self, summary: str | None) -> str:
        """What the person reads beside the answer."""
        left = [counted(self.turns, "turn")] if self.turns else []
        left += [counted(self.results, "tool result")] if self.results else []
        text = f"The model did not receive the oldest {' and '.join(left)}, because the conversation is long."
        return text if summary is None else f"{text} It received this summary instead: {summary}"


def _cut(messages: Sequence[Message], turns: int | None, tokens: int | None) -> Cut:
    """The part of a history within these limits. It depends only on the messages, and so is the same in each request."""
    head = next((n for n, one in enumerate(messages) if one["role"] != "system"), len(messages))
    blocks = _blocks(messages[head:])
    slim = [_slim(block.messages) for block in blocks] if tokens is not None else []
    answered = [*accumulate((block.is_turn for block in blocks), initial=0)]
    full_sizes = [*accumulate((_size(block.messages) for block in blocks), initial=0)]
    slim_sizes = [*accumulate(map(_size, slim), initial=0)]

    def size(start: int, without: int, last: int) -> int:
        without = max(start, without)
        task = _size(_task(blocks, start))
        shortened = slim_sizes[without] - slim_sizes[start] if slim else 0
        return task + shortened + full_sizes[last + 1] - full_sizes[without]

    start = without = 0
    steps: list[int] = []
    is_news = False
    for last, block in enumerate(blocks):
        before = start, without
        if turns is not None and answered[last + 1] - answered[start] > turns:
            while answered[last + 1] - answered[start] > -(-turns * 3 // 4):
                start += 1
        if tokens is not None and size(start, without, last) > tokens:
            goal = tokens * 3 // 4
            while without < last and size(start, without, last) > goal:
                without += 1
            while start < last and size(start, without, last) > goal:
                start += 1
        if start > before[0]:
            steps.append(head + sum(len(one.messages) for one in blocks[:start]))
        is_at_end = last == len(blocks) - 1
        is_news = is_at_end and ((start, without) != before or not block.is_turn)
    kept = [
        slim[n] if start <= n < without else block.messages
        for n, block in enumerate(blocks)
        if n >= start
    ]
    results = sum(
        one is not other
        for n in range(start, without)
        for one, other in zip(blocks[n].messages, slim[n], strict=True)
    )
    left_turns = sum(block.is_turn for block in blocks[:start])
    chosen = (*messages[:head], *_task(blocks, start), *(one for part in kept for one in part))
    return Cut(
        messages=chosen,
        tokens=size(start, without, len(blocks) - 1) if blocks else 0,
        head=head,
        steps=tuple(steps),
        turns=left_turns,
        results=results,
        is_news=is_news and bool(left_turns or results),
    )


def _blocks(messages: Sequence[Message]) -> list[_Block]:
    blocks: list[list[Message]] = []
    is_answered = True
    for one in messages:
        begins = is_prompt(one) or one["role"] in ("assistant", "system")
        if begins and is_answered:
            blocks.append([])
            is_answered = False
        is_answered = is_answered or one["role"] == "assistant"
        if not blocks:
            blocks.append([])
        blocks[-1].append(one)
    return [
        _Block(tuple(block), next((n for n, m in enumerate(block) if not is_prompt(m)), len(block)))
        for block in blocks
    ]


def _task(blocks: Sequence[_Block], start: int) -> tuple[Message, ...]:
    """The messages of the person that the turns from ``start`` on answer, if they are before ``start``."""
    if start >= len(blocks) or blocks[start].prompts:
        return ()
    found = next((block for block in reversed(blocks[:start]) if block.prompts), None)
    return () if found is None else found.messages[: found.prompts]


def _slim(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with a note in place of each result that is not small."""
    return tuple(_without_results(one) if one["role"] == "tool" else one for one in messages)


def _without_results(one: Message) -> Message:
    parts = [
        part if _part_size(part) <= SMALL_RESULT else _note_of(part) for part in one["content"]
    ]
    if all(part is before for part, before in zip(parts, one["content"], strict=True)):
        return one
    return message(one["role"], *parts)


def _note_of(part: Part) -> Part:
    kept = {key: value for key, value in part.items() if key not in ("files", "nbagent")}
    return {**kept, "output": _LEFT_OUT.format(n=f"{len(dumps(part['output'])):,}")}


def _size(messages: Sequence[Message]) -> int:
    return sum(_part_size(part) for one in messages for part in one["content"])


def _part_size(part: Part) -> int:
    """The estimated tokens of a part."""
    if part["type"] == "file":
        is_image = str(part["media_type"]).startswith("image/")
        return IMAGE_TOKENS if is_image else len(part["data"]) // BYTES_OF_TOKEN
    texts = {key: value for key, value in part.items() if key not in ("files", "nbagent")}
    files = part.get("files", ())
    return len(dumps(texts).encode()) // BYTES_OF_TOKEN + sum(map(_part_size, files))


# --- summaries


async def _summary(
    model: Model, known: dict[tuple[str, str], str], messages: Sequence[Message], cut: Cut
) -> tuple[str, Usage]:
    """The summary of the messages that are left out, step by step, and what it has used.

    Raises:
        ModelError: the model failed, or wrote nothing.
    """
    text, start, spent = "", cut.head, NOTHING
    digest = hashlib.sha256()
    for end in cut.steps:
        part = _transcript(messages[start:end])
        digest.update(part.encode(errors="replace"))
        key = (model.name, digest.hexdigest())
        if key not in known:
            written, used = await _continued(model, text, part)
            spent += used
            while len(known) >= MAX_SUMMARIES:
                known.pop(next(iter(known)), None)
            known[key] = written
        text, start = known[key], end
    return text, spent


async def _continued(model: Model, earlier: str, part: str) -> tuple[str, Usage]:
    """The summary of an earlier summary and what followed it; in two steps if that is too long for the model."""
    before = f"Summary of what was before:\n{earlier}\n\n" if earlier else ""
    try:
        return await _written(model, f"{before}{part}")
    except HistoryTooLong:
        if len(part) < SMALL_PART:
            raise
    half = len(part) // 2
    first, used = await _continued(model, earlier, part[:half])
    last, more = await _continued(model, first, part[half:])
    return last, used + more


async def _written(model: Model, text: str) -> tuple[str, Usage]:
    texts: list[str] = []
    used = NOTHING
    request = Request(messages=(user(text),), instructions=_SUMMARIZE, stream=False)
    async with aclosing(_deltas(model, request)) as deltas:
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                texts.append(delta.text)
            elif isinstance(delta, Finished):
                used = delta.usage
    written = "".join(texts).strip()
    if not written:
        failure = ModelError(f"The model {model.name!r} wrote no summary of the conversation")
        failure.usage = used
        raise failure
    return written, used


def _transcript(messages: Sequence[Message]) -> str:
    """Messages as text, for a model that summarizes them."""
    lines = []
    for one in _slim(messages):
        for part in one["content"]:
            kind = part["type"]
            if kind == "text":
                lines.append(f"{one['role']}: {part['text']}")
            elif kind == "file":
                lines.append(f"{one['role']}: [file {part.get('name') or part['media_type']}]")
            elif kind == "tool_call":
                lines.append(f"assistant called {part['name']}({dumps(part['input'])})")
            elif kind == "tool_result":
                lines.append(f"{part['name']} returned {dumps(part['output'])}")
    return "\n".join(lines)


def _with_summary(messages: Sequence[Message], head: int, summary: str) -> tuple[Message, ...]:
    """The messages with the summary before them, in the first message if that is a person's."""
    part = text_part(_SUMMARY.format(text=escaped(summary)))
    first = messages[head]
    if not is_prompt(first):
        return (*messages[:head], user((part,)), *messages[head:])
    with_it = message("user", part, *first["content"], name=first.get("name"))
    return (*messages[:head], with_it, *messages[head + 1 :])
