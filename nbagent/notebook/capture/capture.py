"""Capture of output: a tool's prints, logs, warnings, displays and plots go to its own call.

The ContextVar ``current_call`` has the call that the running code belongs to, in its thread or
task, or in a thread that it started (``started.py``). Output of code outside of a call, or of a call that has ended,
appears in its usual place. So do writes to file descriptors, such as by ``os.system`` or a library in C.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Literal, TextIO
from weakref import WeakKeyDictionary, WeakSet

from nbagent.core.hooks import hooks
from nbagent.core.tools.call_output import CallOutput, current_call

from . import charts, libraries, started
from .bundles import plain_bundle, present
from .libraries import Undo, live_call, meter, replaced

__all__ = ["install", "present", "uninstall"]

MAX_REDRAWN = 10_000
"""Characters of one write up to which the write is searched for progress."""
_LINES = re.compile(r"[^\n]*\n|[^\n]+")

_installed: list[Undo] = []
"""Functions that undo the parts, in the order of installation."""


def install() -> None:
    """Start capturing; a second call does nothing. Imports none of the libraries it adapts."""
    if _installed:
        return
    _installed.extend(
        [*_install_stream("stdout"), *_install_stream("stderr"), *_install_displays()]
    )
    _installed.extend([_install_logging(), _install_warnings(), *started.adapt(_write_of_process)])
    libraries.adapt()
    _installed.extend([libraries.restore, replaced(hooks, "call_ended", libraries.take_figures)])


def uninstall() -> None:
    """Undo ``install``; a replacement that other code has wrapped meanwhile stays, and captures nothing."""
    while _installed:
        _installed.pop()()


def _call() -> CallOutput | None:
    return live_call() if _installed else None


def _printing() -> CallOutput | None:
    """The call that printed text belongs to, even if the call was stopped and its body still runs."""
    output = current_call.get() if _installed else None
    return None if output is None or not output.takes_prints else output


def _write_of_process(output: CallOutput, name: Literal["stdout", "stderr"], text: str) -> None:
    """Write the output of a process that a call has started."""
    stream: Any = getattr(sys, name)
    if isinstance(stream, _CapturedStream):
        stream.write_of(output if output.takes_prints else None, text)


class _CapturedStream:
    """A replacement for ``sys.stdout`` or ``sys.stderr``; everything but writing is the real stream's."""

    def __init__(self, name: Literal["stdout", "stderr"], real: TextIO) -> None:
        self._name: Literal["stdout", "stderr"] = name
        self.real = real
        self._redrawing: WeakSet[CallOutput] = WeakSet()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __iter__(self) -> Any:
        return iter(self.real)

    def write(self, text: str) -> int:
        """Write to the running call, or to the real stream."""
        return self.write_of(_printing(), text)

    def write_of(self, output: CallOutput | None, text: str) -> int:
        """Write to this call, or to the real stream."""
        if output is None:
            return self.real.write(text)
        self._take(output, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write every line."""
        for line in lines:
            self.write(line)

    def _take(self, output: CallOutput, text: str) -> None:
        """Add printed text to the call; lines that redraw themselves with a carriage return become progress."""
        text = text.replace("\r\n", "\n")
        if output in self._redrawing:
            self._redrawing.discard(output)
            text = text.removeprefix("\n")
        if "\r" not in text or len(text) > MAX_REDRAWN:
            output.write(self._name, text)
            return
        for redrawn, lines in groupby(_LINES.findall(text), lambda line: "\r" in line):
            if not redrawn:
                output.write(self._name, "".join(lines))
                continue
            for line in lines:
                drawings = [each for each in line.strip("\n").split("\r") if each.strip()]
                fraction, label = meter(drawings[-1]) if drawings else (None, "")
                if label:
                    output.progress(fraction, label)
                if not line.endswith("\n"):
                    self._redrawing.add(output)
                elif label and fraction is None:
                    output.write(self._name, drawings[-1] + "\n")


def _install_stream(name: Literal["stdout", "stderr"]) -> list[Undo]:
    real: TextIO | None = getattr(sys, name)
    # under pythonw there is none, and print does nothing
    return [] if real is None else [replaced(sys, name, _CapturedStream(name, real))]


def _install_displays() -> list[Undo]:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return []
    publisher = shell.display_pub
    displays = _Displays(publisher.publish, publisher.clear_output)
    names = ("publish", "clear_output")
    return [replaced(publisher, name, getattr(displays, name)) for name in names]


class _Displays:
    """The replacements for two methods of IPython's display publisher."""

    def __init__(self, publish: Callable[..., None], clear: Callable[[bool], None]) -> None:
        self._publish = publish
        self._clear = clear
        self._ids: WeakKeyDictionary[CallOutput, set[str]] = WeakKeyDictionary()

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Show a bundle in the running call. An update of a display that the call did not make goes to IPython."""
        output = _call()
        display_id = (kwargs.get("transient") or {}).get("display_id")
        shown = set() if output is None else self._ids.setdefault(output, set())
        elsewhere = kwargs.get("update", False) and display_id not in shown
        if output is None or elsewhere:
            self._publish(data, metadata, *args, **kwargs)
            return
        if display_id is not None:
            shown.add(display_id)
        output.display(charts.with_words(plain_bundle(data)), display_id=display_id)

    def clear_output(self, wait: bool = False) -> None:  # noqa: FBT001, FBT002  IPython's signature
        """Clear the cell's output; do nothing in a tool."""
        if _call() is None:
            self._clear(wait)


class _CallHandler(logging.Handler):
    """A handler that writes records to the running call."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record as one line, and then its traceback if there is one."""
        output = _printing()
        if output is None:
            return
        try:
            output.write("log", self.format(record) + "\n")
        except Exception:  # such as arguments that don't fit the message: logging reports them
            self.handleError(record)


def _install_logging() -> Undo:
    """Send records to the running call, instead of to handlers that write to the console.

    A handler of the root logger would be simpler. But then ``logging.basicConfig()`` does nothing, and
    warnings of loggers without configuration are lost.
    """
    handler = _CallHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    original = logging.Logger.callHandlers

    def call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
        if _printing() is None:
            original(logger, record)
            return
        handler.handle(record)
        for other in _handlers(logger):
            if record.levelno >= other.level and not _is_console(other):
                other.handle(record)

    return replaced(logging.Logger, "callHandlers", call_handlers)


def _handlers(logger: logging.Logger) -> Iterable[logging.Handler]:
    """The handlers that a record of this logger reaches."""
    at: logging.Logger | None = logger
    while at is not None:
        yield from at.handlers
        at = at.parent if at.propagate else None


def _is_console(handler: logging.Handler) -> bool:
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    console = {id(each) for each in streams}
    console |= {id(each.real) for each in streams if isinstance(each, _CapturedStream)}
    return isinstance(handler, logging.StreamHandler) and id(handler.stream) in console


def _install_warnings() -> Undo:
    original = warnings.showwarning

    def showwarning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        output = _call() if file is None else None
        if output is None:
            original(message, category, filename, lineno, file, line)
        else:  # without the path, which differs from kernel to kernel
            output.write("stderr", f"{category.__name__}: {message}\n")

    return replaced(warnings, "showwarning", showwarning)
