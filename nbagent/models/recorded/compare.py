"""Compare two requests: whether they are equal, and the lines that differ."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Any

from nbagent.core.base.messages import Json, canonical, with_escaped_surrogates
from nbagent.core.base.secrets import MASK

from .scrub import Change, changed, replaced

SETUP = ("instructions", "tools", "hosted", "output_schema")
"""The parts of a request other than its messages."""
LEFT_OUT = "…"
"""The replacement for a text that may differ."""
MAX_LINES, MAX_WIDTH, MAX_COMPARED = 60, 300, 400
"""The maximum lines of a difference, characters of one line, and compared lines of each request."""
MAX_CHARACTERS = 2_000
"""The compared characters of a message; limited, because a request without a match is compared with all exchanges."""
_MASK = re.compile(re.escape(MASK) + r"#[0-9a-f]{8}")


class Comparable:
    """A request in comparable form: with numbered call ids and equal masks, without the allowed differences."""

    def __init__(
        self, request: Mapping[str, Any], model: str | None, ignore: tuple[Change, ...]
    ) -> None:
        alike = partial(_alike, ignore=ignore)
        self.setup: dict[str, Json] = {} if model is None else {"model": model}
        self.setup |= {name: changed(request[name], alike, numbers=True) for name in SETUP}
        self.messages = list(_numbered(changed(request["messages"], alike, numbers=True)))
        self.shape: list[list[Json]] = [
            [
                message.get("role"),
                *([part.get("type"), part.get("name")] for part in message["content"]),
            ]
            for message in self.messages
        ]
        """For each message, its role, and the kinds and tools of its parts."""
        text = canonical([self.setup, self.messages])
        self.key = hashlib.sha256(text.encode()).hexdigest()

    def likeness(self, other: Comparable) -> tuple[int, int, bool, int, float]:
        """The likeness to another request, as a sort key: first equal setup, then equal messages, shapes and words.

        The compared words are those of the first messages that differ.
        """
        setup = sum(self.setup.get(k) == v for k, v in other.setup.items())
        shape = _alike_until(self.shape, other.shape)
        same = _alike_until(self.messages, other.messages)
        first, second = (
            canonical(each.messages[same : same + 1])[:MAX_CHARACTERS] for each in (self, other)
        )
        words = difflib.SequenceMatcher(None, first, second).ratio()
        return setup, same, self.shape == other.shape, shape, words

    def difference(self, asked: Comparable, *, names: tuple[str, str]) -> str:
        """A bounded unified diff from this request to another, without equal messages at the start."""
        same = _alike_until(self.messages, asked.messages)
        sides = [list(islice(_lines(one, same), MAX_COMPARED)) for one in (self, asked)]
        diff = list(difflib.unified_diff(sides[0], sides[1], *names, lineterm="", n=2))
        more = len(diff) - MAX_LINES
        shown = [line if len(line) <= MAX_WIDTH else f"{line[:MAX_WIDTH]}…" for line in diff]
        return "\n".join(shown[:MAX_LINES] + ([f"… and {more} more lines"] if more > 0 else []))


def _alike(text: str, *, ignore: tuple[Change, ...]) -> str:
    text = _MASK.sub(MASK, with_escaped_surrogates(text))  # in the form of a recording
    for change in ignore:
        text = replaced(text, change, by=LEFT_OUT)
    return text


def _numbered(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The messages with numbered call ids, because generated ids differ in each run."""
    ids: dict[str, str] = {}
    for message in messages:
        content = [
            {**part, "id": ids.setdefault(part["id"], f"call {len(ids) + 1}")}
            if "id" in part
            else part
            for part in message["content"]
        ]
        yield {**message, "content": content}


def masks_alike(value: Json) -> Json:
    """JSON with one mask for all secrets, because nbagent's masks are random."""
    return changed(value, partial(_MASK.sub, MASK))


def _alike_until(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The number of equal values from the start of two sequences."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _lines(one: Comparable, skipped: int) -> Iterator[str]:
    """The lines of a request; a text of several lines is split."""
    yield from json.dumps(_in_lines(one.setup), indent=1, ensure_ascii=False).splitlines()
    if skipped:
        yield f"… {skipped} identical messages"
    for message in one.messages[skipped:]:
        yield from json.dumps(_in_lines(message), indent=1, ensure_ascii=False).splitlines()


def _in_lines(value: Json) -> Json:
    match value:
        case str() if "\n" in value:
            return value.splitlines()
        case Mapping():
            return {key: _in_lines(each) for key, each in value.items()}
        case list() | tuple():
            return [_in_lines(each) for each in value]
        case _:
            return value
