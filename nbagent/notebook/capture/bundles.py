"""Values as IPython shows them: the rich mime bundle of a DataFrame, a figure, an image."""

from __future__ import annotations

import base64
import io
import logging
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from nbagent.core.tools.call_output import Bundle

from . import charts

log = logging.getLogger("nbagent")

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")
"""A memory address in text. Text with an address differs in each run, so that nbval would fail."""


def present(value: Any) -> Bundle | None:
    """The mime bundle of a value that has a richer form than text, or None.

    IPython's sources (registered formatters, ``_repr_mimebundle_``, ``_repr_html_`` …) are called
    separately. A source that fails neither hides the other sources nor prints a traceback in the cell.
    ``_ipython_display_`` is not called, because it displays by itself. Binary data is base64 text. Never
    raises: failures are logged as warnings.
    """
    if value is None or isinstance(value, str | int | float | list | dict | tuple):
        return None
    pandas = sys.modules.get("pandas")
    shown = value
    if pandas is not None and isinstance(value, pandas.Series):  # a Series has no HTML, a table has
        shown = value.to_frame("" if value.name is None else value.name)
    bundle = _formatted(shown) | _tried(value, partial(charts.extra_chart_data, value))
    figures = sys.modules.get("matplotlib.figure")
    if (
        "image/png" not in bundle
        and figures is not None
        and isinstance(value, figures.Figure)
        and (value.axes or value.lines)  # IPython shows no image of an empty figure either
    ):
        bundle |= _tried(value, partial(_drawn, value))
    if not bundle:
        return None
    if charts.has_renderer(bundle):
        return charts.with_words(_named(value) | bundle)
    text = _tried(value, lambda: {"text/plain": repr(value)})
    if not _ADDRESS.search(text.get("text/plain", "")):
        bundle = text | bundle
    return bundle


def _named(value: Any) -> Bundle:
    """The text of a widget; empty for other charts, whose text is long and whose data describes them."""
    if not hasattr(value, "model_id"):
        return {}
    text = _tried(value, lambda: {"text/plain": repr(value)})
    plain = _ADDRESS.search(text.get("text/plain", "")) is None
    return text if plain else {"text/plain": type(value).__name__}


def plain_bundle(data: Mapping[str, Any]) -> Bundle:
    """A bundle with its binary data as base64 text, as a notebook stores it."""
    return {
        mime: base64.b64encode(part).decode("ascii") if isinstance(part, bytes) else part
        for mime, part in data.items()
        if part is not None
    }


def _formatted(value: Any) -> Bundle:
    """The bundle that IPython's formatters and the value's own methods return, without ``text/plain``."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return {}
    formatter = shell.display_formatter
    whole = partial(_returned, formatter.mimebundle_formatter, value, include=None, exclude=None)
    bundle = _tried(value, whole)
    for mime, each in formatter.formatters.items():
        if mime != "text/plain":
            part = partial(_returned, each, value, known=mime in bundle)
            bundle |= _tried(value, part, mime)
    bundle.pop("text/plain", None)
    return bundle


def _returned(formatter: Any, value: Any, *, known: bool = False, **options: Any) -> Any:
    """What the printer registered for the value returns, or its own method, unless that part is known; no metadata."""
    if not formatter.enabled:
        return None
    draw, name = None, formatter.print_method
    with suppress(KeyError):
        draw = partial(formatter.lookup(value), value)
    # a class has no display of its own, and a proxy has every attribute
    is_own = not known and not isinstance(value, type) and hasattr(type(value), name)
    if draw is None and is_own and (method := getattr(value, name)):
        draw = partial(method, **options)
    answer = None if draw is None else draw()
    return answer[0] if isinstance(answer, tuple) else answer


def _tried(value: Any, ask: Callable[[], Any], mime: str = "") -> Bundle:
    """The bundle that ``ask`` returns, or its data of this mime type; empty if it fails, with a warning."""
    try:
        answer = ask()
        return plain_bundle({mime: answer} if mime else answer or {})
    except Exception:
        log.warning("showing a %s failed", type(value).__name__, exc_info=True)
        return {}


def _drawn(figure: Any) -> Bundle:
    png = io.BytesIO()
    figure.savefig(png, format="png", bbox_inches="tight")
    return {"image/png": png.getvalue()}
