"""Hints for unknown keywords (the error names the right keyword, also for words of other libraries) and missing ones."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, TypeVar

from nbagent.core.hooks import hooks

from .errors import suggest

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=Exception)

_functions: dict[str, Callable[..., Any]] = {}
"""Public functions, by label: the call as people write it."""

_APPROVAL = ("approval", "policy", "Use nb.tool(approval=True) to ask before a tool runs")
_INSTRUCTIONS = ("instructions",)
_OUTPUT = ("output_type", "output", "reply")
_STORE = ("store",)
_TURNS = ("max_turns",)
_INPUT = ("schema", "input")
_CONTINUE = (
    "Use after=run to continue a conversation, or nb.open_run(run_id, …) to continue a run",
)
_MODEL = ("Pass it to the model: nb.OpenAIModel(name, …)",)
_FIELDS = ("Pass it in the model's request fields: nb.OpenAIModel(name, extra={'%s': …})",)
_CONTEXT = ("context",)
_EVENTS = ("on_event", "Use run.events() or run.subscribe(…) to follow a run and stream its text")

_OTHER_CALLS = ("nb.Agent", "agent.run", "nb.tool")
"""Calls that an unknown keyword may belong to."""

_EQUIVALENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("prompt", "system", "system_prompt", "system_message"), _INSTRUCTIONS),
    **dict.fromkeys(("functions", "toolset", "toolsets"), ("tools",)),
    **dict.fromkeys(("temperature", "api_key", "base_url"), _MODEL),
    **dict.fromkeys(("top_p", "seed", "stop", "service_tier", "verbosity"), _FIELDS),
    **dict.fromkeys(("reasoning", "reasoning_effort", "frequency_penalty"), _FIELDS),
    **dict.fromkeys(("presence_penalty", "logit_bias", "user", "extra_body"), _FIELDS),
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), ("tokens", *_FIELDS)),
    **dict.fromkeys(("human_in_the_loop", "needs_approval", "require_approval"), _APPROVAL),
    **dict.fromkeys(("requires_approval", "require_confirmation", "confirm"), _APPROVAL),
    **dict.fromkeys(("interrupt_on", "interrupt_before", "interrupt_after"), _APPROVAL),
    **dict.fromkeys(("checkpointer", "checkpoint_store", "memory", "db", "storage"), _STORE),
    **dict.fromkeys(("max_iterations", "max_steps", "recursion_limit"), _TURNS),
    **dict.fromkeys(("result_type", "response_format", "response_model", "output_schema"), _OUTPUT),
    **dict.fromkeys(("answer_type", "type", "returns", "output_type", "reply"), _OUTPUT),
    **dict.fromkeys(("parameters", "args_schema", "input_schema", "input_type"), _INPUT),
    **dict.fromkeys(("thread_id", "session_id", "conversation_id", "session"), _CONTINUE),
    **dict.fromkeys(("deps", "dependencies", "ctx", "run_context"), _CONTEXT),
    **dict.fromkeys(("stream", "callbacks", "on_message"), _EVENTS),
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
"""Keywords of other libraries, with their equivalents in nbagent: keywords (the first that the call has), or a
sentence."""


SPELLED = {
    "Prompt": "str | Sequence[Any]",
    "RunPending": "Literal['wait', 'raise', 'reject', 'queue']",
    "Pending": "Literal['raise', 'reject', 'queue']",
    "StoreLike": "Store | str | os.PathLike[str]",
    "Answers": "Sequence[Any] | Mapping[str, Any] | Callable[[PendingInterrupt], Any] | None",
    "Instructions": "str | Callable[[], Returned] | Callable[[RunView], Returned] | None",
    "History": "KeptHistory | Callable[[Sequence[Message]], Returned] | None",
    "Condition": "Callable[[Any], Returned] | Callable[[Any, CallView], Returned]",
    "Approval": "bool | Condition",
    "Choices": "Sequence[str | int | float | Option] | Column | Callable[[], Any]",
    "Remember": "Literal['input_in_run', 'tool_in_run', 'input', 'tool']",
}
"""Internal type names, with the types that a signature shows instead."""
_NAME = re.compile(r"[A-Z]\w+")
_RETURNED = {
    "Instructions": "str",
    "History": "Sequence[Any]",
    "Condition": "bool",
    "Approval": "bool",
}
"""The type that a signature shows in place of ``Returned``, by the type that contains ``Returned``."""


class _Spelled(str):
    """An annotation that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def spell_out(function: Callable[..., Any]) -> None:
    """Show the types of a function spelled out and without quotes in its signature."""
    types = function.__annotations__
    types |= {name: _Spelled(_spelled(t)) for name, t in types.items() if isinstance(t, str)}


def _spelled(annotation: str, returned: str = "Any") -> str:
    """A type as a signature shows it: without names that cannot be imported."""

    def spell(name: re.Match[str]) -> str:
        known = returned if name[0] == "Returned" else SPELLED.get(name[0])
        return name[0] if known is None else _spelled(known, _RETURNED.get(name[0], returned))

    return _NAME.sub(spell, annotation).replace(" | None | None", " | None")


def checks_keywords(label: str) -> Callable[[F], F]:
    """A decorator: an unknown keyword raises an error that names the right keyword, a missing argument one with the call.

    The function's signature (``inspect.signature``, Shift+Tab in Jupyter) has the types spelled out. pytest hides the
    decorator's line in tracebacks, and a notebook shows wrong arguments as it shows nbagent's own errors.

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
                trace = error.__traceback__
                if trace is None or trace.tb_next is not None:
                    raise  # by the function's body, and not by the call itself
                problem = _problem(label, args, kwargs)
                wrong = error if problem is None else TypeError(f"{label}() {problem}")
            raise in_few_lines(wrong)

        spell_out(function)
        _functions[label] = function
        return called  # type: ignore[return-value]  # it is called as the function is

    return decorate


def in_few_lines(wrong: E) -> E:
    """The error, which a notebook shows as it shows nbagent's own errors."""
    wrong._render_traceback_ = functools.partial(hooks.error_lines, wrong)  # type: ignore[attr-defined]
    return wrong


_WRAPPER_CODE = checks_keywords("")(lambda: None).__code__
del _functions[""]


def caller() -> FrameType:
    """The frame that called the function that calls ``caller()``, without the wrapper of ``checks_keywords``."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - types of the defining scope
    while frame is not None and frame.f_code is _WRAPPER_CODE:
        frame = frame.f_back
    assert frame is not None
    return frame


def calling_frame() -> FrameType | None:
    """The frame of the person's code that called nbagent; None if an event loop or a thread did."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as above
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package != _PACKAGE:
            return None if package in ("asyncio", "threading", "concurrent") else frame
        frame = frame.f_back
    return None


_PACKAGE = __name__.partition(".")[0]


def _problem(label: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """The error in the arguments of a call, with a hint; None for an error of another kind."""
    function = _functions[label]
    known = _names(function)
    unknown = next((name for name in kwargs if name not in known), None)
    if unknown is not None:
        return f"got an unexpected keyword argument {unknown!r}{_hint(label, unknown)}"
    parameters = inspect.signature(function).parameters.values()
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(args) > len(positional) and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        rest = [name for name in known if name not in positional]
        takes = ", ".join(name for name in positional if name != "self") or "nothing"
        return f"takes {takes} by position, and everything else by name, as in {rest[0]}=…: {', '.join(rest)}"
    filled = (*positional[: len(args)], *kwargs, *(function.__kwdefaults__ or ()))
    needed = {p.name: p for p in parameters if p.default is p.empty and p.name in known}
    missing = [repr(name) for name in needed if name not in filled]
    shown = (f"{name}=…" if p.kind is p.KEYWORD_ONLY else name for name, p in needed.items())
    return f"needs {' and '.join(missing)}, as in {label}({', '.join(shown)})" if missing else None


def _names(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def _hint(label: str, word: str) -> str:
    """The hint: a keyword of this call, an instruction, or the keyword of another call."""
    own, equivalents = _names(_functions[label]), _EQUIVALENTS.get(word.lower(), ())
    for equivalent in equivalents:
        if equivalent in own:
            return f". Use {equivalent}="
    similar = suggest(word, own)
    if similar and not equivalents:
        return similar
    for equivalent in equivalents:
        if not equivalent.isidentifier():
            return f". {equivalent.replace('%s', word)}"
    for other in _OTHER_CALLS:
        for equivalent in (*equivalents, word):
            if other in _functions and equivalent in _names(_functions[other]):
                return f". Pass it to {other}({equivalent}=…)"
    return similar or f". Available: {', '.join(own)}"
