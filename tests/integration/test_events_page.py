"""The page of events lists the events in the code, and its block prints the expected output."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from nbagent.core.base.events import StoredEvent
from nbagent.core.base.model import ModelDelta
from nbagent.core.tools.call_output import OutputDelta
from tests.integration.test_readme import execute

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
STORED: tuple[Any, ...] = get_args(StoredEvent)
DELTAS: tuple[Any, ...] = (*get_args(ModelDelta), *get_args(OutputDelta))


def type_of(kind: Any) -> str:
    """The ``type`` of an event class."""
    if is_dataclass(kind):
        return next(one.default for one in fields(kind) if one.name == "type")
    return kind.type.fget(None)


def fields_of(kind: Any) -> list[str]:
    """The fields of an event, without those that all events of its table have."""
    if is_dataclass(kind):
        return [one.name for one in fields(kind) if one.name not in ("at", "scope", "type")]
    return list(kind._fields)


def test_the_page_lists_every_event_with_its_fields():
    listed = {name: re.findall(r"`(\w+)`", fields) for name, fields in ROWS}
    assert listed == {type_of(kind): fields_of(kind) for kind in (*STORED, *DELTAS)}
    assert len(ROWS) == len(listed)


@pytest.mark.parametrize("kind", [*STORED, *DELTAS], ids=lambda kind: kind.__name__)
def test_the_type_of_an_event_is_its_name(kind):
    """The type is the class name in snake case."""
    words = re.findall("[A-Z][a-z]+", kind.__name__)
    assert type_of(kind) == "_".join(words).lower()


@pytest.mark.parametrize("kind", DELTAS, ids=lambda kind: kind.__name__)
def test_the_type_of_a_delta_costs_nothing_per_token(kind):
    """The type is an attribute of the class, not of each delta."""
    assert "type" not in kind.__slots__


async def test_the_block_of_the_page_prints_what_happens(capsys):
    """A tool's progress and result, then the model's text."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    await execute(block, {"__name__": "__main__"})
    assert capsys.readouterr().out == "50% of a.csv\nresult: 3\nThree rows.\n"
