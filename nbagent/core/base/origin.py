"""Whose code runs: the person's, or a model's. A model's code answers no question and changes no rule.

The person's code has a mark in its context: in a kernel its cells and the messages of its page; elsewhere the code that
first used nbagent, such as a script's main thread. Tasks inherit the mark, and so do copies of the context. Code
without the mark, as in a thread, a timer or a new context, counts as the person's until a model's code has run in this
process. Then it may be the model's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from .errors import UsageError

T = TypeVar("T")

MODEL_FILE = "<run_python"
"""The beginning of the file names of code that a model wrote."""
PERSON: Final = "person"
MODEL: Final = "model"
CHANGE: Final = ("A model's code cannot change rules", "A person must change them")
_mark: ContextVar[str] = ContextVar("nbagent_origin", default="")
_mark.set(PERSON)


class Process:
    """This process, as far as code of models matters."""

    may_run_code = False
    """Whether there is a tool that runs a model's code."""
    has_run_code = False
    """Whether a model's code has run."""
    has_marks = True
    """Whether the person's code can be marked; False in a kernel without known places for it."""


process = Process()


@contextmanager
def marked(mark: str) -> Iterator[None]:
    """Mark what runs inside, with the tasks and copies of the context that it makes."""
    process.has_run_code |= mark == MODEL
    token = _mark.set(mark)
    try:
        yield
    finally:
        _mark.reset(token)


def expect_code(*, has_marks: bool) -> None:
    """Note that a model's code may run from now on; the calling code is the person's."""
    process.may_run_code, process.has_marks = True, has_marks
    if not process.has_run_code:
        _mark.set(PERSON)


def current_mark() -> str:
    """``PERSON`` or ``MODEL``; empty if it is unknown whose code runs."""
    if not process.has_run_code:
        return PERSON
    mark = _mark.get()
    if mark == MODEL or _has_model_frame():
        return MODEL
    return mark or ("" if process.has_marks else PERSON)


def check_person(rule: str, instead: str) -> None:
    """Check that the calling code is the person's.

    Args:
        rule: what a model's code cannot do, as a sentence.
        instead: what to do, as a sentence.

    Raises:
        UsageError: the code is a model's, or may be a model's.
    """
    mark = current_mark()
    if mark == MODEL:
        raise UsageError(f"{rule}. {instead}")
    if not mark:
        raise UsageError(
            f"{rule}, and a model's code has run in this process. This code may be the model's too, because it runs "
            f"in a new thread or context. {instead}, in a form, a cell or the main thread. If this is your own "
            "thread, start it there with target=contextvars.copy_context().run"
        )


def _has_model_frame() -> bool:
    """Whether a function that a model wrote leads to this call, below the person's cell or message."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    while frame is not None and frame.f_globals is not globals():
        if frame.f_code.co_filename.startswith(MODEL_FILE):
            return True
        frame = frame.f_back
    return False


def of_person(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler of a message with which a person runs code."""
    if getattr(handler, "is_of_person", False):
        return handler

    async def awaited(result: Awaitable[Any]) -> Any:
        with marked(PERSON):
            return await result

    @functools.wraps(handler)
    def handle(*args: Any, **options: Any) -> Any:
        with marked(PERSON):
            result = handler(*args, **options)
        return awaited(result) if inspect.isawaitable(result) else result

    handle.is_of_person = True  # type: ignore[attr-defined]
    return handle


def only_person(kind: type, *names: str) -> None:
    """Let only the person's code call these methods of a class, which change rules."""

    def checked(change: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(change)
        def checked_change(self: Any, *args: Any, **options: Any) -> Any:
            if process.has_run_code:
                check_person(*CHANGE)
            return change(self, *args, **options)

        return checked_change

    for name in names:
        setattr(kind, name, checked(getattr(kind, name)))


class PersonsList(list[T]):
    """A list that only the person's code changes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return PersonsList, ([*self],)


only_person(PersonsList, "__delitem__", "__iadd__", "__imul__", "__setitem__", "append", "clear")
only_person(PersonsList, "extend", "insert", "pop", "remove", "reverse", "sort")


class PersonsAttribute:
    """An attribute that only the person's code sets again; lists become a ``PersonsList``."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, one: Any, value: Any) -> None:
        if process.has_run_code and self._name in one.__dict__:
            check_person(*CHANGE)
        one.__dict__[self._name] = PersonsList(value) if type(value) is list else value
