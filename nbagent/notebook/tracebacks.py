"""IPython's display of an nbagent error: the person's own lines, without those of nbagent and of Python."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import TracebackType
from typing import Any

from nbagent.core.base.controls import escaped

_OURS = ("nbagent", "IPython", "ipykernel")
"""Packages whose lines in an nbagent error do not help a person."""
_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")
"""The colors of IPython's tracebacks: the only control sequence that they need."""
_STDLIB = sysconfig.get_path("stdlib") + os.sep


def rendered(error: BaseException) -> list[str]:
    """The lines that IPython shows for the error; with ``%xmode Verbose``, with all frames.

    Control characters are escaped, except for colors, because the cause may be a tool's error with any message.
    """
    from IPython.core.getipython import get_ipython  # noqa: PLC0415  not where nothing is shown

    shell = get_ipython()
    if shell is None:
        return [escaped(line) for line in traceback.format_exception(error)]
    show: Any = shell.InteractiveTB
    if show.mode == "Verbose":
        return _plain(show.structured_traceback(type(error), error, error.__traceback__))
    with _shortened(error):
        # 0: skip no frame, because the shell's own frames are already removed
        lines = show.structured_traceback(type(error), error, error.__traceback__, tb_offset=0)
        return _plain(lines)


def _plain(lines: Iterable[str]) -> list[str]:
    parts = (_COLOR.split(line) for line in lines)
    return ["".join(p if n % 2 else escaped(p) for n, p in enumerate(each)) for each in parts]


def show_line(error: BaseException, line: str) -> None:
    """Make the shell show this line instead of the error; the error's type and stack stay unchanged."""
    shown = [line]
    error._render_traceback_ = lambda: shown  # type: ignore[attr-defined]


def others(tb: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of nbagent and the shell, and of libraries that they call."""
    kept = []
    is_others = False
    while tb is not None:
        module = tb.tb_frame.f_globals.get("__name__")
        path = tb.tb_frame.f_code.co_filename
        is_library = path.startswith((_STDLIB, "<frozen ")) or any(
            f"{os.sep}{folder}{os.sep}" in path for folder in ("site-packages", "dist-packages")
        )
        if str(module).partition(".")[0] in _OURS:
            is_others = False
        elif not is_library:
            is_others = True
        if is_others:
            kept.append(tb)
        tb = tb.tb_next
    trimmed: TracebackType | None = None
    for one in reversed(kept):
        trimmed = TracebackType(trimmed, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return trimmed


@contextmanager
def _shortened(error: BaseException) -> Iterator[None]:
    """Reduce the error and its causes to the user's frames, temporarily; a cause without such frames is left out."""
    chain: list[tuple[BaseException, Any]] = []
    one: BaseException | None = error
    while one is not None and all(one is not seen for seen, _ in chain):
        before = (one.__cause__, one.__context__, one.__suppress_context__, one.__traceback__)
        chain.append((one, before))
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    try:
        for each, (*_, tb) in chain:
            each.__traceback__ = others(tb)
        for (each, _), (earlier, _) in pairwise(chain):
            if earlier.__traceback__ is None:
                each.__cause__ = each.__context__ = None
        yield
    finally:
        for each, (cause, context, suppressed, tb) in chain:
            each.__cause__, each.__context__, each.__traceback__ = cause, context, tb
            each.__suppress_context__ = suppressed
