"""What one answer to many questions covers: the values of each input, and the values that a person opens first.

A value is odd, and not covered until it is opened, if the summary cannot show it or if it differs from the others:

- It has more than ``MAX_VALUE`` characters.
- It has marked characters, as in an approval.
- It is a number more than three spreads below the first or above the third quartile. The spread is the distance of the
  quartiles, or the median if they are equal.
- It is a text of more than ``SHORT`` characters, three times as long as the median.
- It is of another type than most values. Null and left out values do not count.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from nbagent.core.base.messages import canonical
from nbagent.forms.values import is_number
from nbagent.notebook.render import facts
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import Covers, Fact, Spread

MAX_VALUE = 160
"""Characters of one value in a summary."""
SHORT = 40
FEW = 8
"""Different values that are counted one by one."""
MAX_LISTED = 100
"""Different texts of one input that a page can list."""
MAX_INPUTS = 50
"""Inputs of a summary; a question that has others must be answered by itself."""
BARS = 12
_HUGE = 1e200
"""The size from which numbers are shown as text, because their sum may be no number."""
MIN = 5
"""Questions from which on a value can differ from the others."""
_LATIN = "\xc0-\u017e\u2013\u2014\u2018\u2019\u201c\u201d\u2026\u20ac"
_PLAIN = re.compile(
    rf"""[!#-,./:-HJ-MO-Z\\\]^-eg-mo-su-z|}}~{_LATIN}](?:[ -~{_LATIN}]*[!-~{_LATIN}])?"""
)
"""Text that never has marks: Latin letters and common signs, without blanks at the ends, and not like JSON."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Odd(Generic[Key]):
    """A value that a person opens before an answer to many questions covers it."""

    id: str
    name: str
    value: Any
    why: str
    keys: tuple[Key, ...]
    """The questions that have the value."""
    is_whole: bool
    """Whether the fact shows all of the value; otherwise no answer to many questions covers it."""

    @property
    def fact(self) -> Fact:
        """The whole value, as in an approval."""
        return facts.facts_of({self.name: self.value}, approved=True)[0]

    def __str__(self) -> str:
        """The name and the reason."""
        name = facts.shown(self.name, facts.MAX_SHORT)
        return TEXTS["odd_value"].format(name=name, why=self.why)


class Summary(Generic[Key]):
    """The values of many questions, input by input.

    Args:
        questions: the named values of each question.
        room: characters of one value that the page shows.
    """

    def __init__(self, questions: Mapping[Key, Mapping[str, Any]], room: int = MAX_VALUE) -> None:
        self._questions, self._room = questions, room
        columns: dict[str, dict[str, list[Key]]] = {}
        values: dict[str, Any] = {}
        for key, given in questions.items():
            for name, value in given.items():
                text = canonical(value)
                values[text] = value
                columns.setdefault(name, {}).setdefault(text, []).append(key)
        self.names = [*columns][:MAX_INPUTS]
        self.odd: list[Odd[Key]] = []
        """The odd values, by input."""
        self._texts: dict[tuple[str, str], str] = {}
        """The shown text of each value that is not odd."""
        for name, found in columns.items():
            column = {text: (values[text], len(keys)) for text, keys in found.items()}
            reasons = _reasons(column) if len(questions) >= MIN else {}
            if not _PLAIN.fullmatch(name) and (marks := _shown(name)[1]):
                reasons = dict.fromkeys(found, marks)
            for text, keys in found.items():
                self._judge(name, text, values[text], keys, reasons.get(text, ""))
        self._columns, self._values = columns, values

    def _judge(self, name: str, text: str, value: Any, keys: list[Key], why: str) -> None:
        plain = value if isinstance(value, str) else text
        if not why and len(plain) > self._room:
            why = TEXTS["odd_long"].format(n=f"{len(plain):,}")
        is_simple = not isinstance(value, str | list | dict) or _PLAIN.fullmatch(plain)
        is_json = not isinstance(value, str)
        shown, marks = (plain, "") if is_simple or why else _shown(plain, is_json=is_json)
        why = why or marks
        if not why and name in self.names:
            self._texts[name, text] = facts.bounded(shown, MAX_VALUE)
            return
        id_ = hashlib.sha256(f"{name}\0{text}".encode("utf-8", "replace")).hexdigest()[:16]
        is_whole = len(plain) <= facts.MAX_APPROVED and name in self.names
        self.odd.append(Odd(id_, name, value, why, tuple(keys), is_whole))
        self._texts[name, text] = facts.brief_of(value)

    def covered(self, opened: Collection[str]) -> list[Key]:
        """The questions without odd values, or whose odd values are all opened."""
        left = {
            key for one in self.odd if one.id not in opened or not one.is_whole for key in one.keys
        }
        return [key for key in self._questions if key not in left]

    def covers(self, opened: Collection[str]) -> Covers:
        """The values of the covered questions."""
        keys = set(self.covered(opened))
        inputs = [self._spread(name, keys) for name in self.names] if keys else []
        return Covers(n=len(keys), inputs=inputs)

    def _spread(self, name: str, keys: set[Key]) -> Spread:
        counts = {
            text: sum(key in keys for key in all_) for text, all_ in self._columns[name].items()
        }
        counts = {text: n for text, n in counts.items() if n}
        absent = len(keys) - sum(counts.values())
        nothing = [(TEXTS["fact_left_out"], absent)] if absent else []
        label = facts.shown(name, facts.MAX_BRIEF)
        by_count = sorted(counts, key=lambda text: -counts[text])
        values = [(self._texts[name, text], counts[text]) for text in by_count]
        if len(values) <= FEW:
            return Spread(name=label, values=[*values, *nothing])
        if null := counts.pop("null", 0):
            nothing.insert(0, ("null", null))
        numbers = {text: self._values[text] for text in counts}
        if all(is_number(value) and abs(value) < _HUGE for value in numbers.values()):
            text, bars = _numbers({text: (numbers[text], n) for text, n in counts.items()})
            return Spread(name=label, text=text, values=nothing, bars=bars)
        listed = [(self._texts[name, text], counts[text]) for text in by_count if text in counts]
        lengths = [len(text) for text, _ in listed]
        same = min(lengths) == max(lengths)
        text = TEXTS["covers_texts_same" if same else "covers_texts"].format(
            n=f"{len(listed):,}", low=f"{min(lengths):,}", high=f"{max(lengths):,}"
        )
        more = max(0, len(listed) - MAX_LISTED)
        return Spread(name=label, text=text, values=nothing, listed=listed[:MAX_LISTED], more=more)


@lru_cache(maxsize=20_000)
def _shown(text: str, *, is_json: bool = False) -> tuple[str, str]:
    """A text, or the JSON of another value, as an approval shows it, and a remark about its marks."""
    hidden = TEXTS["odd_hidden"] if reveal(text) != text else ""
    if is_json:
        return reveal(text), facts.remarks(text) or hidden
    [fact] = facts.facts_of({"value": text}, approved=True)
    remark = fact.remark if fact.parts or fact.remark != TEXTS["remark_json"] else ""
    return fact.value, remark or hidden


def _kind(value: Any) -> str:
    return "number" if is_number(value) else type(value).__name__


def _reasons(column: Mapping[str, tuple[Any, int]]) -> dict[str, str]:
    """Why values differ from the others of their input, by their JSON; most values do not."""
    kinds: Counter[str] = Counter()
    for value, n in column.values():
        kinds[_kind(value)] += n * (value is not None)
    usual = max(kinds, key=lambda kind: kinds[kind])
    same = [value for value, n in column.values() if _kind(value) == usual for _ in range(n)]
    low = high = 0.0
    if usual == "number":
        low, high = _limits([value for value in same if abs(value) < _HUGE])
    longest = max(SHORT, 3 * _quantile(sorted(map(len, same)), 0.5)) if usual == "str" else 0
    found = {}
    for text, (value, _) in column.items():
        if value is None:
            continue
        if _kind(value) != usual:
            found[text] = TEXTS["odd_kind"]
        elif usual == "number" and not low <= value <= high:
            found[text] = TEXTS["odd_far"]
        elif usual == "str" and len(value) > longest:
            found[text] = TEXTS["odd_longer"]
    return found


def _limits(numbers: list[float]) -> tuple[float, float]:
    """The limits beyond which a number is far from the others."""
    if not numbers:
        return 0, 0
    ordered = sorted(numbers)
    first, median, third = (_quantile(ordered, part) for part in (0.25, 0.5, 0.75))
    spread = 3 * ((third - first) or abs(median))
    return first - spread, third + spread


def _quantile(ordered: Sequence[float], part: float) -> float:
    """The value at this part of a sorted list."""
    return ordered[int(part * len(ordered))]


def _numbers(counts: Mapping[str, tuple[float, int]]) -> tuple[str, list[int]]:
    """The range and the sum of numbers as a text, and the bars of their histogram."""
    low, high = (pick(value for value, _ in counts.values()) for pick in (min, max))
    total = sum(value * n for value, n in counts.values())
    if isinstance(total, float):
        total = round(math.fsum(value * n for value, n in counts.values()), 6)
    text = TEXTS["covers_range"].format(low=f"{low:,}", high=f"{high:,}", sum=f"{total:,}")
    bars = [0] * BARS
    for value, n in counts.values():
        bars[min(BARS - 1, int(BARS * ((value - low) / (high - low))))] += n
    return text, bars
