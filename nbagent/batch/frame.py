"""The results of a batch as a table, joined to its input."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, is_typeddict

from pydantic import BaseModel

from nbagent.core.agent import Agent
from nbagent.core.base.incoming_json import MAX_EVENT_PARTS, within_parts
from nbagent.core.base.table import dataframe_of
from nbagent.core.journal.rows import End

from .listing import RowState
from .rows import RowSource


def batch_frame(
    rows: Mapping[str, RowState], ends: Iterable[End], source: RowSource | None, agent: Agent
) -> Any:
    """Return the input with the result of each row; see ``Batch.to_frame``."""
    outputs = {end.run_id: _output(end, typed=agent.output_type is not None) for end in ends}
    fields = fields_of(agent.output_type)
    frame = None if source is None else source.frame
    if source is not None and source.is_table:
        keys: list[str] = list(source.keys())
    else:
        keys = [row.key for row in sorted(rows.values(), key=lambda row: row.number)]
    taken = set() if frame is None else {str(name) for name in frame.columns}
    given = [_free_name(name, taken) for name in fields or ["output"]]
    status, *others = (_free_name(name, taken) for name in ("status", "error", "cost", "run"))
    columns = [status, *given, *others]

    def record(key: str) -> list[Any]:
        row = rows.get(key)
        if row is None:
            return ["left", *[None] * (len(columns) - 1)]
        found = outputs.get(row.run_id)
        parts = found if isinstance(found, dict) else {}
        values = [parts.get(name) for name in fields] if fields else [found]
        return [row.status, *values, row.error or None, row.usage.cost, row.run_id]

    records = [record(key) for key in keys]
    if frame is None:
        table = dataframe_of([dict(zip(columns, each, strict=True)) for each in records], columns)
        table.index = sys.modules["pandas"].Index(keys, name="key", dtype="object")
        return table
    named = {name: [each[at] for each in records] for at, name in enumerate(columns)}
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(frame, polars.DataFrame):
        return frame.with_columns(
            polars.Series(name, values, strict=False) for name, values in named.items()
        )
    return frame.assign(**named)


def _free_name(name: str, taken: set[str]) -> str:
    """A column name that no other column has; it is then taken too."""
    while name in taken:
        name = f"{name}_of_run"
    taken.add(name)
    return name


def fields_of(output_type: Any) -> list[str]:
    """Return the columns of an output of this type; an empty list if the output is a single value."""
    if isinstance(output_type, type) and issubclass(output_type, BaseModel):
        return list(output_type.model_fields)
    if dataclasses.is_dataclass(output_type):
        return [field.name for field in dataclasses.fields(output_type)]
    if is_typeddict(output_type):
        return list(output_type.__annotations__)
    if isinstance(output_type, Mapping) and isinstance(output_type.get("properties"), Mapping):
        return list(output_type["properties"])
    return []


def _output(end: End, *, typed: bool) -> Any:
    try:
        plain = json.loads(within_parts(end.data or "", MAX_EVENT_PARTS))
    except (ValueError, RecursionError):
        return None
    if plain.get("type") != "run_completed":
        return None
    return plain.get("output") if typed else plain.get("text", "")
