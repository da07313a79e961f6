"""Charts and widgets of a run's calls, which Jupyter draws below the card.

In every view, the row of a call has a description or a picture of the chart. While the card is live, Jupyter
draws the chart below the card. Once the card is replaced, the chart is an output of the cell, which a saved
notebook stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import ipywidgets

from nbagent.core.base.events import ToolFinished
from nbagent.core.journal.journal import RunEvent
from nbagent.core.tools.call_output import Bundle, Displayed
from nbagent.notebook.capture.charts import chart_of
from nbagent.notebook.render.reveal import reveal

from .front_end import close_boxes

MAX_CHARTS = 20
"""Charts below one card; further charts are only in the rows."""

_Call: TypeAlias = tuple[tuple[str, ...], str]
"""The scope and the id of a call."""
_Key: TypeAlias = tuple[_Call, str | int]


class Charts:
    """The displays of the calls of some runs that Jupyter draws by itself, in order of arrival."""

    def __init__(self, events: Iterable[RunEvent] = ()) -> None:
        self._shown: dict[_Key, Bundle] = {}
        self._areas: dict[_Key, ipywidgets.Box] = {}
        for event in events:
            self.add_event(event)

    def add_event(self, event: RunEvent) -> bool:
        """Take an event of the run; return whether the charts have changed."""
        if isinstance(event, Displayed):
            call = (tuple(event.scope), event.call_id)
            number = sum(key[0] == call for key in self._shown)
            return self._show((call, event.display_id or number), event.bundle)
        if isinstance(event, ToolFinished):
            return self._finish((tuple(event.scope), event.call_id), event)
        return False

    def _show(self, key: _Key, bundle: Mapping[str, Any]) -> bool:
        chart = chart_of(bundle)
        if chart is None:
            return self._shown.pop(key, None) is not None
        changed = self._shown.get(key) != chart
        self._shown[key] = chart
        return changed

    def _finish(self, call: _Call, event: ToolFinished) -> bool:
        """Add the charts of a finished call at the end, unless they are displayed already."""
        changed = False
        displayed = [chart for key, chart in self._shown.items() if key[0] == call]
        for number, bundle in enumerate([*event.displays, event.display or {}]):
            chart = chart_of(bundle)
            if chart is not None and chart not in displayed:
                changed |= self._show((call, f"finished {number}"), bundle)
        return changed

    @property
    def bundles(self) -> list[Bundle]:
        """The charts, as an output of a cell has them."""
        return list(self._shown.values())[:MAX_CHARTS]

    @property
    def rows(self) -> list[Any]:
        """The widgets that show the charts."""
        wanted = dict(list(self._shown.items())[:MAX_CHARTS])
        for key in [*self._areas]:
            if key not in wanted:
                close_boxes([self._areas.pop(key)])
        for key, chart in wanted.items():
            area = self._areas.get(key)
            if area is None:
                output = ipywidgets.Output(outputs=_outputs(chart))
                output.layout.margin = "2px 0 8px"
                self._areas[key] = ipywidgets.VBox([output])
            elif area.children[0].outputs != _outputs(chart):
                area.children[0].outputs = _outputs(chart)
        return [self._areas[key] for key in wanted]

    def give(self) -> list[Bundle]:
        """Remove and return the charts."""
        given = self.bundles
        self._shown.clear()
        return given

    def close(self) -> None:
        """Remove the charts from the page."""
        close_boxes(self._areas.values())
        self._areas.clear()


def _outputs(chart: Bundle) -> tuple[dict[str, Any], ...]:
    shown = chart | {"text/plain": reveal(str(chart.get("text/plain", "")))}
    return ({"output_type": "display_data", "data": shown, "metadata": {}},)
