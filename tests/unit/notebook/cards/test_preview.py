"""The preview above an approval's buttons: made off the loop, updated after edits, never fatal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.notebook.cards import preview as module
from nbagent.notebook.cards.preview import Preview
from nbagent.notebook.view.question_kinds import Types
from nbagent.notebook.view.questions import Question
from tests.until import turns


class Table:
    """A value with an HTML representation."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def _repr_html_(self) -> str:
        return f"<table><tr><td>{self.rows} rows</td></tr></table><script>bad()</script>"

    def __repr__(self) -> str:
        return f"{self.rows} rows"


class Shown:
    """A preview of ``delete(rows=214)``, with its outputs."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        @nb.tool(preview=fn, approval=True, editable=True)
        def delete(rows: int) -> str:
            return f"deleted {rows}"

        waiting = PendingInterrupt(
            id="i",
            tool_name="delete",
            call_id="c",
            kind="approval",
            expects="edit",
            input={"rows": 214},
            editable=True,
            digest="d",
        )
        question = Question.of(waiting, Types(input=delete.input_type))
        self.seen: list[tuple[list[str], str | None]] = []
        self._changed = asyncio.Event()
        self.preview = Preview(delete, question, self._show)

    def _show(self, pieces: list[Any], error: str | None, note: str | None) -> None:
        self.seen.append(([piece.data for piece in pieces], error or note))
        self._changed.set()

    async def next(self) -> tuple[list[str], str | None]:
        """The next output."""
        await asyncio.wait_for(self._changed.wait(), 10)
        self._changed.clear()
        return self.seen[-1]


def rows(text: str) -> dict[str, Any]:
    return {"fields": {"rows": {"text": text}}}


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.01)


async def test_a_preview_gets_the_typed_input_in_a_separate_thread() -> None:
    """A slow preview never blocks the loop of all forms and runs."""
    threads = []

    def show(given: Any) -> str:
        threads.append(threading.current_thread())
        return f"{given.rows + 1}"

    assert await Shown(show).next() == (["215"], None)
    assert threads != [threading.main_thread()]


async def test_an_async_preview_is_awaited() -> None:
    """As an async tool is."""

    async def show(given: Any) -> str:
        await asyncio.sleep(0)
        return f"{given.rows} rows"

    assert await Shown(show).next() == (["214 rows"], None)


async def test_edits_refresh_the_preview_for_the_newest_input() -> None:
    """Edits during a preview lead to one new preview; invalid input has none."""
    made: list[int] = []
    going, go_on = threading.Event(), threading.Event()

    def show(given: Any) -> str:
        made.append(given.rows)
        if given.rows == 1:
            going.set()
            go_on.wait(10)
        return f"{given.rows} rows"

    shown = Shown(show)
    assert await shown.next() == (["214 rows"], None)
    shown.preview.typed(rows("1"))
    await asyncio.to_thread(going.wait, 10)
    for text in ("2", "3", "4"):
        shown.preview.typed(rows(text))
    go_on.set()
    assert await shown.next() == (["4 rows"], None)
    assert made == [214, 1, 4]
    shown.preview.typed(rows("four"))
    assert await shown.next() == ([], module.TEXTS["preview_waits"])
    shown.preview.typed(None)
    assert await shown.next() == (["214 rows"], None)


async def test_an_error_of_a_preview_is_a_line_and_the_next_one_can_work() -> None:
    """The person's own code may raise anything."""

    def show(given: Any) -> str:
        if given.rows == 214:
            raise KeyError("no \u202e table")
        return "fine"

    shown = Shown(show)
    pieces, error = await shown.next()
    assert pieces == []
    assert error == "The preview failed: KeyError: 'no \\u202e table'"
    shown.preview.typed(rows("1"))
    assert await shown.next() == (["fine"], None)


async def test_an_ended_preview_shows_nothing() -> None:
    """The question was answered while the preview was made."""
    going, go_on, left = threading.Event(), threading.Event(), threading.Event()

    def show(_input: Any) -> str:
        going.set()
        go_on.wait(10)
        left.set()
        return "late"

    shown = Shown(show)
    await asyncio.to_thread(going.wait, 10)
    shown.preview.end()
    go_on.set()
    await asyncio.to_thread(left.wait, 10)
    await turns()
    assert shown.seen == []
