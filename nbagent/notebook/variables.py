"""The notebook's variables in a chat: their names for completion, and a bounded summary of each mentioned variable.

A table has the same summary as in any prompt. numpy is not imported: arrays exist only if other code imported numpy.
"""

from __future__ import annotations

import re
import reprlib
import sys
from collections.abc import Collection
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from nbagent.core.base.errors import UsageError
from nbagent.core.tools import tables
from nbagent.core.tools.attachments import File, mention

from . import kernel
from .wire import Name

MENTIONED = re.compile(r"(?<![\w@])@([^\W\d]\w*)")
MAX_NAMES = 50
"""Names that are offered at a time."""
MAX_MENTIONS = 10
"""Variables of one message that are described."""
MAX_SUMMARY = 8_000
_PICTURES = ("matplotlib", "PIL", "plotly", "altair")
"""Packages whose values are sent as pictures."""
_NOT_OFFERED = (ModuleType, FunctionType, BuiltinFunctionType, type)


def offered(prefix: str) -> list[Name]:
    """The variables whose names start with the prefix, with their types: those with its capitals first, by name."""
    found = [
        Name(name=name, about=type(value).__name__[:60])
        for name, value in kernel.variables().items()
        if name.lower().startswith(prefix.lower()) and _is_data(value)
    ]
    return sorted(found, key=lambda one: (not one.name.startswith(prefix), one.name.lower()))[
        :MAX_NAMES
    ]


def mentioned(text: str, before: Collection[str] = ()) -> list[File]:
    """The variables that a text names with ``@``, each as a file: a picture, or a summary in text.

    Args:
        text: the text; a name that is not a variable is plain text.
        before: the names, with ``@``, that were variables in an earlier version of the text.

    Raises:
        UsageError: a variable of the earlier version no longer exists, or a variable's own code failed during its
            summary.
    """
    known = kernel.variables()
    names = dict.fromkeys(MENTIONED.findall(text))
    chosen = [name for name in names if name in known and _is_data(known[name])]
    for name in names:
        if name not in chosen and f"@{name}" in before:
            raise UsageError(
                f"@{name} is no longer a variable. Define {name} again, or remove @{name} from the message."
            )
    return [_file(name, known[name]) for name in chosen[:MAX_MENTIONS]]


def summary(value: Any) -> str:
    """A description of a value, of bounded length."""
    text = tables.table_summary(value)
    if text is None:
        text = f"{_kind(value)}{_size(value)}\n{_inside(value)}"
    return text if len(text) <= MAX_SUMMARY else f"{text[: MAX_SUMMARY - 1]}…"


def _is_data(value: Any) -> bool:
    return not isinstance(value, _NOT_OFFERED) and type(value).__module__ != "typing"


def _file(name: str, value: Any) -> File:
    if type(value).__module__.partition(".")[0] in _PICTURES:
        try:
            return File(value, name=f"@{name}")
        except UsageError:
            pass  # such as axes: they are described in words
    return mention(value, name, summary)


def _kind(value: Any) -> str:
    """The value's type; for an array of numpy, after the common word for it."""
    name = f"{type(value).__module__.partition('.')[0]}.{type(value).__qualname__}"
    return f"array ({name})" if name == "numpy.ndarray" else name.removeprefix("builtins.")


def _size(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and all(isinstance(each, int) for each in shape):
        return " of " + " \u00d7 ".join(map(str, shape))
    if isinstance(value, str | bytes | list | tuple | dict | set | frozenset):
        return f" of {len(value)}"
    return ""


def _inside(value: Any) -> str:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return f"{value.dtype}\n{numpy.array2string(value, threshold=50, edgeitems=3)}"
    return _repr.repr(value)


_repr = reprlib.Repr()
_repr.maxlist = _repr.maxtuple = _repr.maxset = _repr.maxdict = 20
_repr.maxstring = _repr.maxother = 2_000
_repr.maxlevel = 4
