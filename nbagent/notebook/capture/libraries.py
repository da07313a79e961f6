"""Adapters for pyplot, tqdm and Altair inside a tool: figures, bars and charts of a call belong to that call.

``pyplot`` has one list of open figures for the whole process. With the adapter, each call has its own list,
so that parallel tools, the person's cells and the inline backend never draw, show or close each other's
figures. ``tqdm`` writes to a stream or makes a widget; with the adapter, a bar in a call reports its
progress to the call. An Altair chart displays a script that the page fetches; in a call, the bundle has the
chart's data too. No library is imported here: each library is adapted when other code imports it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from nbagent.core.tools.call_output import CallOutput, current_call

from . import charts
from .bundles import present

log = logging.getLogger("nbagent")

Undo = Callable[[], None]

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PERCENT = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d+)?)\s?%")
_DRAWN = re.compile(r"\s*\d{1,3}%\|[^|]*\|\s*")
MAX_METER = 500
"""Characters at a line's start that are searched for a progress bar."""
_undo: list[Undo] = []
_figures: WeakKeyDictionary[CallOutput, OrderedDict[Any, Any]] = WeakKeyDictionary()


def replaced(owner: Any, name: str, new: Any) -> Undo:
    """Set an attribute; the returned function restores it, unless other code has replaced it meanwhile."""
    original = getattr(owner, name)
    setattr(owner, name, new)

    def undo() -> None:
        if getattr(owner, name) is new:
            setattr(owner, name, original)

    return undo


def live_call() -> CallOutput | None:
    """The call that the running code belongs to, unless that call has ended."""
    output = current_call.get()
    return None if output is None or output.closed else output


def meter(line: str) -> tuple[float | None, str]:
    """The fraction, if the line has a percentage, and the line's text without the drawn progress bar."""
    line = _ESCAPES.sub("", line[:MAX_METER]).strip()
    percent = _PERCENT.search(line)
    fraction = min(1.0, float(percent[1]) / 100) if percent else None
    return fraction, _DRAWN.sub(" ", line).strip()


def adapt() -> None:
    """Adapt the libraries that are imported already, and the other libraries when they are imported."""
    for name, change in _CHANGES.items():
        if name in sys.modules:
            _change(change, sys.modules[name])
    sys.meta_path.insert(0, _finder)


def restore() -> None:
    """Undo ``adapt``."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    while _undo:
        _undo.pop()()


def take_figures(output: CallOutput) -> None:
    """Move the open figures of a call whose body has ended into its output, as images, and close them.

    A figure that can't be drawn is logged and closed too. Drawing may take long, so call this where a delay does no
    harm, before the output closes.
    """
    if not _figures.get(output):
        return
    gcf = sys.modules["matplotlib._pylab_helpers"].Gcf
    token = current_call.set(output)
    try:
        for manager in gcf.get_all_fig_managers():
            bundle = present(manager.canvas.figure)
            if bundle is not None:
                output.display(bundle)
        gcf.destroy_all()
    finally:
        current_call.reset(token)
        _figures.pop(output, None)


class _Figures:
    """The open figures of the running call; outside of calls, the shared figures."""

    def __init__(self, shared_figures: OrderedDict[Any, Any]) -> None:
        self.shared_figures = shared_figures

    def _now(self) -> OrderedDict[Any, Any]:
        output = live_call()
        return self.shared_figures if output is None else _figures.setdefault(output, OrderedDict())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now(), name)

    def __getitem__(self, number: Any) -> Any:
        return self._now()[number]

    def __setitem__(self, number: Any, manager: Any) -> None:
        self._now()[number] = manager

    def __delitem__(self, number: Any) -> None:
        del self._now()[number]

    def __contains__(self, number: object) -> bool:
        return number in self._now()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._now())

    def __reversed__(self) -> Iterator[Any]:
        numbers: Iterator[Any] = reversed(self._now())
        return numbers

    def __len__(self) -> int:
        return len(self._now())


class _BarFile:
    """The file that a progress bar of a call writes to."""

    def __init__(self, output: CallOutput) -> None:
        self._output = output

    def write(self, text: str) -> None:
        """Report the drawn progress to the call; callable on any thread."""
        fraction, label = meter(text.rsplit("\r", 1)[-1])
        if label:
            self._output.progress(fraction, label)

    def flush(self) -> None:
        """Do nothing, as nothing is buffered."""


def _own_bars(std: ModuleType) -> Undo:
    """Give bars a file that reports to the call, unless another file is set."""
    original = std.tqdm.__init__

    def init(bar: Any, *args: Any, **kwargs: Any) -> None:
        output = live_call()
        file = args[4] if len(args) > 4 else kwargs.get("file")
        if output is not None and (file is None or file in (sys.stdout, sys.stderr)):
            kwargs["file"] = _BarFile(output)
            args = args[:4]
        original(bar, *args, **kwargs)

    init.__wrapped__ = original  # type: ignore[attr-defined]  # inspect shows tqdm's own parameters
    return replaced(std.tqdm, "__init__", init)


def _plain_bars(notebook: ModuleType) -> Undo:
    """Make a plain bar if a call asks for a widget, because a widget sends 11 messages and is displayed."""
    bar = notebook.tqdm_notebook
    original = bar.__new__

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if live_call() is None:
            return original(cls, *args, **kwargs)
        from tqdm.asyncio import tqdm_asyncio  # noqa: PLC0415  the person's library, not ours

        kwargs.pop("display", None)
        return tqdm_asyncio(*args, **kwargs)

    return replaced(bar, "__new__", new)


def _charts_as_data(api: ModuleType) -> Undo:
    """Add an Altair chart's specification to its mime bundle in a call."""
    chart = api.TopLevelMixin
    original = chart._repr_mimebundle_

    def bundle(self: Any, *args: Any, **kwargs: Any) -> Any:
        shown = original(self, *args, **kwargs)
        if live_call() is None or not isinstance(shown, dict):
            return shown
        return shown | charts.specification(self)

    return replaced(chart, "_repr_mimebundle_", bundle)


_CHANGES: dict[str, Callable[[ModuleType], Undo]] = {
    "altair.vegalite.v5.api": _charts_as_data,
    "altair.vegalite.v6.api": _charts_as_data,
    "matplotlib._pylab_helpers": lambda helpers: replaced(
        helpers.Gcf, "figs", _Figures(helpers.Gcf.figs)
    ),
    "tqdm.std": _own_bars,
    "tqdm.notebook": _plain_bars,
}


def _change(change: Callable[[ModuleType], Undo], module: ModuleType) -> None:
    try:
        _undo.append(change(module))
    except AttributeError:
        log.warning(
            "this version of %s is not supported; its output in tools appears in the cell",
            module.__name__,
            exc_info=True,
        )


class _Finder(importlib.abc.MetaPathFinder):
    """An import finder that adapts a library right after its import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the other finders for a module to adapt, with a loader that adapts the module."""
        if name not in _CHANGES:
            return None
        others = (each for each in sys.meta_path if each is not self)
        specs = (each.find_spec(name, path, target) for each in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, _CHANGES[name])
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, original: Any, change: Callable[[ModuleType], Undo]) -> None:
        self._original = original
        self._change = change

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Create the module with the usual loader."""
        module: ModuleType | None = self._original.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module with the usual loader, which replaces this loader in the spec, then adapt the module."""
        assert module.__spec__ is not None  # it was found by its spec
        module.__spec__.loader = module.__loader__ = self._original
        self._original.exec_module(module)
        _change(self._change, module)


_finder = _Finder()
