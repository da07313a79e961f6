"""Charts, maps and widgets: data that Jupyter draws with a renderer of its own.

A card shows only the picture in such a bundle; a renderer of Jupyter or of a library draws the rest. The
bundle also describes the chart in words, so that a row, a saved notebook and the model have a short text.
A renderer may insert data into the page as HTML. Therefore it gets only charts that this process made, and
no charts from a store or from elsewhere.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import sys
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any

from nbagent.core.base.process import fork_safe
from nbagent.core.tools.call_output import Bundle
from nbagent.forms.values import dict_or_empty

MAX_DATA = 2_000_000
"""Characters of a chart's data as JSON; of a larger chart only the words and its picture are shown."""
MAX_WORDS = 60
"""Characters of a title or a name in a description."""
MAX_LISTED = 8
"""Traces, fields or names that a description lists."""
MAX_KNOWN = 1_000
"""Charts that are remembered as made in this process."""
MAX_WALKED = 5_000
"""Parts of a specification that are searched."""

_PLOTLY = "application/vnd.plotly.v1+json"
_VEGA = re.compile(r"application/vnd\.(vega|vegalite)\.v(\d{1,3})[.+]json")
_GEO = "application/geo+json"
_WIDGET = "application/vnd.jupyter.widget-view+json"
_NEWEST = {"vega": 5, "vegalite": 5}
"""The newest version of each format that JupyterLab 4 draws.

A chart of a later version gets this version, as the formats are similar enough.
"""
_LOADED = ("url", "source", "geojson")
"""The names that Vega and Plotly use for an address that they load from."""
_ROWS = ("values", "datasets", "customdata")
"""The names that Vega and Plotly use for data; addresses in data are not loaded."""
_ELSEWHERE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:\s*)?[/\\]\s*[/\\]", re.IGNORECASE)
_SCRIPT = re.compile(r"<script\b", re.IGNORECASE)
_KEPT = re.compile(r"image/|text/")

_known: OrderedDict[str, None] = OrderedDict()
_lock = fork_safe(Lock())


def has_renderer(bundle: Mapping[str, Any]) -> bool:
    """Whether a renderer of Jupyter draws some part of this bundle."""
    return any(map(_is_chart, bundle))


def chart_of(bundle: Mapping[str, Any]) -> Bundle | None:
    """The data and the words of a chart, which Jupyter draws. None if this process did not make the chart."""
    data = {mime: each for mime, each in bundle.items() if _is_chart(mime)}
    if not data or _digest(data) not in _known:
        return None
    return data | {"text/plain": bundle.get("text/plain", "")}


def with_words(bundle: Bundle) -> Bundle:
    """The bundle as it is stored: for a chart, the data, the pictures, and a description in words.

    HTML with scripts is removed, because the data has the same content. Other bundles stay unchanged.
    """
    found = {mime: data for mime, data in map(_drawable, bundle.items()) if _is_chart(mime)}
    if not found:
        return bundle
    words = _words(found, str(bundle.get("text/plain", "")))
    if any(map(_loads, found.values())):
        found, words = {}, f"{words} (not drawn here, because it loads from elsewhere)"
    elif len(json.dumps(found, default=str)) > MAX_DATA:
        found, words = {}, f"{words} (too large to draw here)"
    kept = {
        mime: data
        for mime, data in bundle.items()
        if _KEPT.match(mime) and not (mime == "text/html" and _SCRIPT.search(str(data)))
    }
    if found:
        with _lock:
            _known[_digest(found)] = None
            while len(_known) > MAX_KNOWN:
                _known.popitem(last=False)
    return {"text/plain": words} | found | kept | {"text/plain": words}


def extra_chart_data(value: Any) -> Bundle:
    """Data that a value does not display by itself: an Altair chart's specification, or a GeoJSON object's data."""
    for module in ("altair.vegalite.v6.api", "altair.vegalite.v5.api"):
        found = sys.modules.get(module)
        if found is not None and isinstance(value, found.TopLevelMixin):
            return specification(value)
    shown = sys.modules.get("IPython.display")
    if shown is not None and isinstance(value, shown.GeoJSON):
        return {_GEO: value.data}
    return {}


def specification(chart: Any) -> Bundle:
    """An Altair chart as data."""
    return {"application/vnd.vegalite.v5+json": chart.to_dict(context={"pre_transform": False})}


def _is_chart(mime: str) -> bool:
    return mime in (_PLOTLY, _GEO, _WIDGET) or _VEGA.fullmatch(mime) is not None


def _drawable(part: tuple[str, Any]) -> tuple[str, Any]:
    """A part of a bundle, with a mime type for which Jupyter has a renderer."""
    mime, data = part
    if mime == _GEO:
        return mime, _without_markup(data)
    vega = _VEGA.fullmatch(mime)
    if vega is None or not isinstance(data, dict):
        return part
    kind, version = vega[1], min(int(vega[2]), _NEWEST[vega[1]])
    name = {"vega": "vega", "vegalite": "vega-lite"}[kind]
    schema = f"https://vega.github.io/schema/{name}/v{version}.json"
    # the options for the page in usermeta may make the page load more
    kept = {key: each for key, each in data.items() if key != "usermeta"}
    return f"application/vnd.{kind}.v{version}+json", kept | {"$schema": schema}


def _without_markup(data: Any) -> Any:
    """GeoJSON with escaped text, because a renderer may insert properties into a page as HTML."""
    if isinstance(data, str):
        return html.escape(data)
    if isinstance(data, list | tuple):
        return [_without_markup(each) for each in data]
    if isinstance(data, dict):
        return {
            html.escape(str(key)): each if key == "coordinates" else _without_markup(each)
            for key, each in data.items()
        }
    return data


def _loads(data: Any) -> bool:
    """Whether a renderer would load something from another place."""
    waiting = [data]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            mark = part.get("mark", part.get("type"))
            kind = mark.get("type") if isinstance(mark, dict) else mark
            if kind == "image" and ("mark" in part or "encode" in part):
                return True  # the addresses of images may be in the rows
            if any(
                _ELSEWHERE.match(part[key]) for key in _LOADED if isinstance(part.get(key), str)
            ):
                return True
            waiting += [each for key, each in part.items() if key not in _ROWS]
        elif isinstance(part, list | tuple):
            waiting += [each for each in part if isinstance(each, dict | list | tuple)]
    return False


def _digest(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()


# --- in words


def _words(found: Mapping[str, Any], text: str) -> str:
    """A description of a chart, in a few lines at most."""
    mime, data = next(iter(found.items()))
    if mime == _WIDGET or not isinstance(data, dict):
        return _short(text, 10 * MAX_WORDS) or "a widget"
    if mime == _PLOTLY:
        return _plotly(data)
    return _geo(data) if mime == _GEO else _vega(data)


def _plotly(figure: Mapping[str, Any]) -> str:
    traces = [each for each in _list(figure.get("data")) if isinstance(each, dict)]
    layout = dict_or_empty(figure.get("layout"))
    parts = []
    for trace in traces:
        sizes = [_size(trace.get(name)) for name in ("y", "x", "values", "z", "lat", "r")]
        points = f" ({max(sizes):,} points)" if any(sizes) else ""
        kind = _short(trace.get("type") or "scatter")
        parts.append(f"{kind}{_quoted(trace.get('name'))}{points}")
    axes = (
        f"{name[0]}: {_short(title)}"
        for name in ("xaxis", "yaxis", "zaxis")
        if (title := _title(dict_or_empty(layout.get(name)).get("title")))
    )
    head = f"Plotly figure{_quoted(_title(layout.get('title')))}"
    return _description(head, [_listed(parts), *axes])


def _size(values: Any) -> int:
    """The number of values in a list, or in an array's bytes as base64."""
    if isinstance(values, dict):
        digits = re.search(r"\d{1,3}", str(values.get("dtype", "")))
        return len(str(values.get("bdata", ""))) * 3 // 4 // max(1, int(digits[0] if digits else 8))
    return len(values) if isinstance(values, list | tuple) else 0


def _vega(spec: Mapping[str, Any]) -> str:
    marks: dict[str, None] = {}
    channels: dict[str, None] = {}
    rows = 0
    for part in _walked(spec):
        mark = part.get("mark")
        mark = mark.get("type") if isinstance(mark, dict) else mark
        if isinstance(mark, str):
            marks[_short(mark)] = None
        for channel, encoded in dict_or_empty(part.get("encoding")).items():
            field = dict_or_empty(encoded).get("field") or dict_or_empty(encoded).get("aggregate")
            if isinstance(field, str):
                channels[f"{_short(channel)}: {_short(field)}"] = None
        rows += _size(dict_or_empty(part.get("data")).get("values"))
    rows += sum(_size(each) for each in dict_or_empty(spec.get("datasets")).values())
    head = f"Vega chart{_quoted(_title(spec.get('title')))}"
    return _description(
        head, [_listed([*marks]), _listed([*channels]), f"{rows:,} rows" if rows else ""]
    )


def _walked(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A specification and the specifications inside it."""
    waiting, seen = deque([spec]), 0
    while waiting and seen < MAX_WALKED:
        part = waiting.popleft()
        seen += 1
        yield part
        for name in ("layer", "hconcat", "vconcat", "concat", "marks"):
            waiting += [each for each in _list(part.get(name)) if isinstance(each, dict)]
        if isinstance(part.get("spec"), dict):
            waiting.append(part["spec"])


def _geo(data: Mapping[str, Any]) -> str:
    features = [each for each in _list(data.get("features")) if isinstance(each, dict)]
    names = dict.fromkeys(
        _short(name)
        for each in features[:MAX_WALKED]
        for name in dict_or_empty(each.get("properties"))
    )
    number = f"{len(features):,} features" if features else ""
    return _description(
        f"GeoJSON {_short(data.get('type') or '')}".strip(), [number, _listed([*names])]
    )


def _description(head: str, parts: list[str]) -> str:
    details = "; ".join(part for part in parts if part)
    return f"{head}: {details}" if details else head


def _listed(items: list[str]) -> str:
    more = len(items) - MAX_LISTED
    return ", ".join(items[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def _title(title: Any) -> Any:
    return title.get("text") if isinstance(title, dict) else title


def _quoted(name: Any) -> str:
    return f" “{_short(name)}”" if isinstance(name, str) and name.strip() else ""


def _short(text: Any, limit: int = MAX_WORDS) -> str:
    line = " ".join(str(text)[: 4 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
