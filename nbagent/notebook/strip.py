"""The time strip: when the model answered, tools ran, and a person was waited for."""

from __future__ import annotations

from typing import Literal

from .wire import Span

Lane = Literal["model", "tool", "wait"]
MAX_SPANS = 40
"""Spans that are left when neighbors of one lane are joined, at twice as many: a strip is only so wide."""


class Strip:
    """Spans by what they belong to, in Unix seconds."""

    def __init__(self) -> None:
        self._done: list[tuple[Lane, float, float]] = []
        self._open: dict[str, tuple[Lane, float]] = {}
        self._built: list[Span] = []
        """The wire's form of the first of ``_done``."""

    def start(self, key: str, lane: Lane, at: float) -> None:
        """Something begins."""
        self._open.setdefault(key, (lane, at))

    def stop(self, key: str, at: float) -> None:
        """It is over; nothing happens if it never began."""
        begun = self._open.pop(key, None)
        if begun is not None:
            self._done.append((begun[0], begun[1], max(at, begun[1])))
            if len(self._done) > 2 * MAX_SPANS:
                self._done = _joined(self._done)
                self._built = []

    def stop_all(self, at: float) -> None:
        """The run is over."""
        for key in list(self._open):
            self.stop(key, at)

    def spans(self, origin: float) -> list[Span]:
        """The spans in seconds from ``origin``."""
        self._built += [
            Span(lane=lane, start=round(start - origin, 3), end=round(end - origin, 3))
            for lane, start, end in self._done[len(self._built) :]
        ]
        going = [Span(lane=lane, start=round(at - origin, 3)) for lane, at in self._open.values()]
        return self._built + going


def _joined(spans: list[tuple[Lane, float, float]]) -> list[tuple[Lane, float, float]]:
    """Fewer spans that look the same: those that nearly touch are one."""
    ordered = sorted(spans, key=lambda s: (s[0], s[1]))
    length = max(end for *_, end in spans) - min(start for _, start, _ in spans)
    gap = length / (2 * MAX_SPANS)
    while True:
        out = ordered[:1]
        for lane, start, end in ordered[1:]:
            last = out[-1]
            if last[0] == lane and start - last[2] <= gap:
                out[-1] = (lane, last[1], max(end, last[2]))
            else:
                out.append((lane, start, end))
        if len(out) <= MAX_SPANS:
            return out
        gap = gap * 2 or 0.001
