"""Hints for unknown keywords: the error names the right keyword, also for words of other libraries."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, TypeVar

from .errors import suggest

F = TypeVar("F", bound=Callable[..., Any])

_told: dict[str, Callable[..., Any]] = {}
"""Public calls, by the way people write them."""

_ASKED_FIRST = ("approval", "policy", "Use nb.tool(approval=True) to ask before a tool runs")
_INSTRUCTED = ("instructions",)
_TYPED = ("output_type", "output", "reply")
_KEPT = ("store",)
_TURNS = ("max_turns",)
_INPUT = ("schema", "input")
_GOES_ON = (
    "Use after=run to continue a conversation, or nb.open_run(run_id, …) to continue a run",
)
_MODELS = ("Pass it to the model: nb.OpenAIModel(name, …)",)
_FIELDS = ("Pass it in the model's request fields: nb.OpenAIModel(name, extra={'%s': …})",)
_HELD = ("context",)
_WATCHED = ("on_event", "Use run.events() or run.subscribe(…) to follow a run and stream its text")

_ELSEWHERE = ("nb.Agent", "agent.run", "nb.tool")
"""Calls that an unknown keyword may belong to."""

_OURS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("prompt", "system", "system_prompt", "system_message"), _INSTRUCTED),
    **dict.fromkeys(("functions", "toolset", "toolsets"), ("tools",)),
    **dict.fromkeys(("temperature", "api_key", "base_url"), _MODELS),
    **dict.fromkeys(("top_p", "seed", "stop", "service_tier", "verbosity"), _FIELDS),
    **dict.fromkeys(("reasoning", "reasoning_effort", "frequency_penalty"), _FIELDS),
    **dict.fromkeys(("presence_penalty", "logit_bias", "user", "extra_body"), _FIELDS),
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), ("tokens", *_FIELDS)),
    **dict.fromkeys(("human_in_the_loop", "needs_approval", "require_approval"), _ASKED_FIRST),
    **dict.fromkeys(("requires_approval", "require_confirmation", "confirm"), _ASKED_FIRST),
    **dict.fromkeys(("interrupt_on", "interrupt_before", "interrupt_after"), _ASKED_FIRST),
    **dict.fromkeys(("checkpointer", "checkpoint_store", "memory", "db", "storage"), _KEPT),
    **dict.fromkeys(("max_iterations", "max_steps", "recursion_limit"), _TURNS),
    **dict.fromkeys(("result_type", "response_format", "response_model", "output_schema"), _TYPED),
    **dict.fromkeys(("answer_type", "type", "returns", "output_type", "reply"), _TYPED),
    **dict.fromkeys(("parameters", "args_schema", "input_schema", "input_type"), _INPUT),
    **dict.fromkeys(("thread_id", "session_id", "conversation_id", "session"), _GOES_ON),
    **dict.fromkeys(("deps", "dependencies", "ctx", "run_context"), _HELD),
    **dict.fromkeys(("stream", "callbacks", "on_message"), _WATCHED),
    **dict.fromkeys(
        ("retries", "max_retries", "retry"), ("Use middleware=[nb.Retry(times=…)] to retry tools",)
    ),
    **dict.fromkeys(("result_retries", "validation_retries"), ("output_retries",)),
    "timeout": (
        "expires_in",
        "seconds",
        "Use middleware=[nb.Timeout(seconds)] to limit a tool's time",
    ),
    **dict.fromkeys(("deadline", "ttl"), ("expires_in",)),
    **dict.fromkeys(("condition", "predicate"), ("when",)),
    "return_direct": ("final",),
    "default": ("value",),
    **dict.fromkeys(
        ("history", "message_history", "chat_history"),
        ("messages", "Use after=run to continue a conversation"),
    ),
    **dict.fromkeys(("message", "description"), ("reason", "metadata", "message")),
    **dict.fromkeys(("editable_fields", "allow_edit"), ("editable",)),
    "question": ("metadata",),
    **dict.fromkeys(("choices", "options"), ("Pass nb.Choose(message, choices) as the metadata",)),
}
"""Words of other libraries, and their equivalents here: keywords (the first that the call has), or a
sentence."""


SPELLED = {
    "Prompt": "str | Sequence[Any]",
    "RunPending": "Literal['wait', 'raise', 'reject', 'queue']",
    "Pending": "Literal['raise', 'reject', 'queue']",
    "Kept": "Store | str | os.PathLike[str]",
    "Answers": "Sequence[Any] | Mapping[str, Any] | Callable[[PendingInterrupt], Any] | None",
    "Instructions": "str | Callable[[], Said] | Callable[[RunView], Said] | None",
    "Condition": "Callable[[Any], Said] | Callable[[Any, CallView], Said]",
    "Approval": "bool | Condition",
    "Choices": "Sequence[str | int | float | Option] | Column | Callable[[], Any]",
    "Remember": "Literal['input_in_run', 'tool_in_run', 'input', 'tool']",
}
"""Internal type names, as the signature of a call shows them."""
_NAME = re.compile(r"[A-Z]\w+|Said")
_SAID = {"Instructions": "str", "Condition": "bool", "Approval": "bool"}
"""The return type that is shown for a function of such a type, if it is not async."""


class _Spelled(str):
    """An annotation that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def spell_out(function: Callable[..., Any]) -> None:
    """Show the types of a function spelled out and without quotes in its signature."""
    types = function.__annotations__
    types |= {name: _Spelled(_spelled(t)) for name, t in types.items() if isinstance(t, str)}


def _spelled(annotation: str, said: str = "Any") -> str:
    """A type as it is shown: without names that cannot be imported."""

    def spell(name: re.Match[str]) -> str:
        known = said if name[0] == "Said" else SPELLED.get(name[0])
        return name[0] if known is None else _spelled(known, _SAID.get(name[0], said))

    return _NAME.sub(spell, annotation).replace(" | None | None", " | None")


def checks_keywords(label: str) -> Callable[[F], F]:
    """A decorator: an unknown keyword raises an error that names the right one.

    Its signature (``inspect.signature``, Shift+Tab in Jupyter) has the types spelled out. Its own line in a
    traceback is hidden in IPython and pytest.

    Args:
        label: the call as people write it, such as ``agent.run``.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                # raised by the call itself, and by nothing in it
                here = error.__traceback__
                wrong = _wrong(label, args, kwargs) if here and here.tb_next is None else None
                if wrong is None:
                    raise
            raise TypeError(f"{label}() {wrong}")

        spell_out(function)
        _told[label] = function
        return called  # type: ignore[return-value]  # it is called as the function is

    return decorate


def check_keywords_of(kind: type[Any], label: str) -> None:
    """The same for what makes the objects of a class whose ``__init__`` is generated."""
    kind.__init__ = checks_keywords(label)(kind.__init__)


_CALLED = checks_keywords("")(lambda: None).__code__
del _told[""]


def caller() -> FrameType:
    """The frame that called the function which asks."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - types of the defining scope
    while frame is not None and frame.f_code is _CALLED:
        frame = frame.f_back
    assert frame is not None
    return frame


def calling_code() -> FrameType | None:
    """The frame of the person's code that runs now; None where a loop or a thread of its own runs ours."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as above
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package != _OWN:
            return None if package in ("asyncio", "threading", "concurrent") else frame
        frame = frame.f_back
    return None


_OWN = __name__.partition(".")[0]


def _wrong(label: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """The error in the arguments of a call, with a hint; None for an error of another kind."""
    function = _told[label]
    known = _names(function)
    unknown = next((name for name in kwargs if name not in known), None)
    if unknown is not None:
        return f"got an unexpected keyword argument {unknown!r}{_hint(label, unknown)}"
    parameters = inspect.signature(function).parameters.values()
    placed = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(args) <= len(placed) or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    rest = [name for name in known if name not in placed]
    takes = ", ".join(name for name in placed if name != "self") or "nothing"
    return f"takes {takes} by position, and everything else by name, as in {rest[0]}=…: {', '.join(rest)}"


def _names(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def _hint(label: str, word: str) -> str:
    """The hint: a keyword of this call, an equivalent, or the keyword of another call."""
    own, ours = _names(_told[label]), _OURS.get(word.lower(), ())
    for meant in ours:
        if meant in own:
            return f". Use {meant}="
    near = suggest(word, own)
    if near and not ours:
        return near
    for meant in ours:
        if not meant.isidentifier():
            return f". {meant.replace('%s', word)}"
    for other in _ELSEWHERE:
        for meant in (*ours, word):
            if other in _told and meant in _names(_told[other]):
                return f". Pass it to {other}({meant}=…)"
    return near or f". Available: {', '.join(own)}"
