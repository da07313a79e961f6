"""The input of a batch: a table or any iterable, read row by row."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from string import Formatter
from typing import Any, NamedTuple

from pydantic import BaseModel

from nbagent.core.base.errors import UsageError, suggest
from nbagent.core.base.file_parts import Content
from nbagent.core.base.messages import dumps, with_escaped_surrogates
from nbagent.core.base.table import is_missing
from nbagent.core.tools.attachments import check_spec, prompt_content
from nbagent.core.tools.tables import is_of

_ID = re.compile(r"[\w.:+-][\w.:@+-]*")
MAX_RUN_ID = 100
"""The maximum number of characters of a run id."""
MAX_KEY = 1000
"""The maximum number of characters of a key."""
VALUE = "value"
"""The column name of a row that is a plain value."""


class InputRow(NamedTuple):
    """One row of the input."""

    number: int
    """The position of the row in the input, from 0."""
    key: str
    prompt: Any
    """The prompt, as ``agent.run`` accepts it."""
    digest: str


@dataclass(frozen=True, slots=True)
class RowSource:
    """The rows of a batch, and the functions for their prompts and keys."""

    items: Callable[[], Iterator[tuple[Any, Any]]]
    """Return a new iterator of labels and rows. A label is None if the source has none."""
    count: int | None
    """The number of rows; None if it is unknown."""
    frame: Any
    """The DataFrame of the rows; None for any other input."""
    prompt: Callable[[Any], Any]
    key: Callable[[Any], Any] | None

    @property
    def is_table(self) -> bool:
        """Whether the rows can be read more than once; then their number is known."""
        return self.count is not None

    def __iter__(self) -> Iterator[InputRow]:
        """Yield each row with its key and prompt; both are made only when the row is read.

        Raises:
            UsageError: a row has no key, lacks a column, or its prompt cannot be made. The message names the row.
        """
        for number, (label, row) in enumerate(self.items()):
            key = self._key(row, label, number)
            try:
                prompt = self.prompt(row)
                content = prompt_content(prompt)
            except UsageError as error:
                raise UsageError(f"Row {number} ({key!r}): {error}") from error
            except Exception as error:
                error.add_note(f"It was raised for the prompt of row {number} ({key!r}).")
                raise
            yield InputRow(number, key, prompt, digest(content))

    def keys(self) -> Iterator[str]:
        """Yield the key of each row, in order, without making prompts."""
        for number, (label, row) in enumerate(self.items()):
            yield self._key(row, label, number)

    def _key(self, row: Any, label: Any, number: int) -> str:
        key = number if label is None else label
        if self.key is not None:
            try:
                key = self.key(row)
            except UsageError as error:
                raise UsageError(f"Row {number}: {error}") from error
        text = "" if is_missing(key) else str(key)
        if not text.strip():
            raise UsageError(
                f"Row {number} has no key: {key!r:.80}. Use a column without gaps as key="
            )
        if len(text) > MAX_KEY:
            raise UsageError(
                f"The key of row {number} has {len(text):,} characters. The limit is {MAX_KEY:,}: {text!r:.80}"
            )
        if with_escaped_surrogates(text) != text:
            raise UsageError(
                f"The key of row {number} is not valid Unicode (it has half of a surrogate pair): {text!r:.80}"
            )
        return text


def digest(content: Content) -> str:
    """Return the hash by which the prompts of a row are compared."""
    text = content if isinstance(content, str) else dumps(list(content))
    data = text.encode(errors="backslashreplace")  # as the run's prompt is stored
    return hashlib.sha256(data).hexdigest()[:32]


def run_id_of(batch: str, key: str, attempt: int = 1) -> str:
    """Return the id of a row's run. The id has the key, or a hash of an unfit key. Later attempts add a number."""
    later = "" if attempt == 1 else f"@{attempt}:"
    run_id = f"{batch}:{later}{key}"
    if _ID.fullmatch(key) and len(run_id) <= MAX_RUN_ID:
        return run_id
    return f"{batch}:{later}@{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def source_of(rows: Any, prompt: Any, key: Any) -> RowSource:
    """Return the source of a batch's rows; the arguments are those of ``nb.map``.

    Raises:
        UsageError: an argument has the wrong type, a column is missing, or the template's columns have missing values.
    """
    if not isinstance(prompt, str) and not callable(prompt):
        raise UsageError(
            f"prompt= must be a template such as 'Classify: {{text}}', or a function of the row, got {prompt!r:.80}"
        )
    if key is not None and not isinstance(key, str) and not callable(key):
        raise UsageError(f"key= must be a column name or a function of the row, got {key!r:.80}")
    make_prompt = _Template(prompt) if isinstance(prompt, str) else prompt
    names = make_prompt.names if isinstance(make_prompt, _Template) else []
    by = (lambda row: _value_of(_as_values(row), key)) if isinstance(key, str) else key
    needs_all_columns = callable(prompt) or callable(key)
    wanted = [*names, *([key] if isinstance(key, str) else [])]

    kind = _table_kind(rows)
    if kind in ("pandas.DataFrame", "polars.DataFrame"):
        # without the data: columns and rows that are inserted later do not belong to the batch
        rows = rows.copy(deep=False) if kind == "pandas.DataFrame" else rows.clone()
        columns = list(map(str, rows.columns))
        _check_columns(wanted, columns, "the table")
        _check_gaps(rows, columns, names)
        used = columns if needs_all_columns else [name for name in columns if name in wanted]
        positions = [columns.index(name) for name in used]
        if kind == "polars.DataFrame":
            return RowSource(lambda: _of_polars(rows, used), len(rows), rows, make_prompt, by)
        return RowSource(
            lambda: _of_pandas(rows, used, positions), len(rows), rows, make_prompt, by
        )
    if kind in ("pandas.Series", "polars.Series"):
        name = str(rows.name) if rows.name not in (None, "") else VALUE
        _check_columns(wanted, ["", VALUE, name], "the series")
        _check_gaps(rows, ["", VALUE, name], names)
        labels: Iterable[Any] = rows.index if kind == "pandas.Series" else range(len(rows))

        def values() -> Iterator[tuple[Any, Any]]:
            for label, value in zip(labels, rows, strict=True):
                yield label, value if needs_all_columns else {"": value, VALUE: value, name: value}

        return RowSource(values, len(rows), None, make_prompt, by)
    if kind is not None:
        raise UsageError(f"A {kind} cannot be read row by row. Call collect() first")
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise UsageError(
            f"rows must be a DataFrame, or an iterable of dicts, pydantic models or values, got {rows!r:.80}. Use "
            "pd.read_csv(path) for a file, pd.DataFrame(…) for a dict of columns"
        )
    count = len(rows) if isinstance(rows, Collection) else None
    if count:
        _check_columns(wanted, [*map(str, _as_values(next(iter(rows))))], "row 0")
    return RowSource(lambda: ((None, row) for row in rows), count, None, make_prompt, by)


class _Template:
    """A prompt with ``{column}``. Braces in a value are plain text, not a template."""

    def __init__(self, text: str) -> None:
        try:
            self._parts = list(Formatter().parse(text))
        except ValueError as error:
            raise UsageError(
                f"prompt={text!r:.80} is not a valid template: {error}. Write a literal brace twice"
            ) from None
        self.names = [name for _, name, _, _ in self._parts if name is not None]
        """The columns that the template names, in order."""
        if not self.names:
            raise UsageError(
                f"prompt={text!r:.80} has no {{column}}, so all rows would have the same prompt. Name a column, or pass a function"
            )
        for _, name, spec, _ in self._parts:
            try:
                check_spec(spec or "")
            except ValueError as error:
                raise UsageError(f"{{{name}:{spec:.40}}} of the prompt: {error}") from None

    def __call__(self, row: Any) -> str:
        values, made = _as_values(row), list[str]()
        for literal, name, spec, conversion in self._parts:
            made.append(literal)
            if name is None:
                continue
            value = _value_of(values, name)
            if is_missing(value):
                raise UsageError(f"its column {name!r} is empty ({value}). {_FILL}")
            if conversion:
                value = Formatter().convert_field(value, conversion)
            try:
                made.append(format(value, spec or ""))
            except (ValueError, TypeError) as error:
                raise UsageError(
                    f"{{{name}:{spec}}} of the prompt cannot format {value!r:.80}: {error}"
                ) from None
        return "".join(made)


_FILL = "Fill or drop such rows first, or pass a function as prompt="
"""What to do about missing values, in errors."""


def _check_gaps(table: Any, columns: Sequence[str], names: Iterable[str]) -> None:
    """Raise if a table or series has missing values in a column of the template, before any row costs money."""
    for name in dict.fromkeys(names):
        at, is_pandas = columns.index(name), hasattr(table, "iloc")
        column = (
            table if len(table.shape) == 1 else table.iloc[:, at] if is_pandas else table[:, at]
        )
        if is_pandas:
            rows = column.isna().to_numpy().nonzero()[0]
        else:
            column = column.fill_nan(None) if column.dtype.is_float() else column
            rows = column.is_null().arg_true()
        if len(rows):
            raise UsageError(
                f"The column {name!r} is empty in {len(rows):,} of {len(column):,} rows, first in row {rows[0]}. {_FILL}"
            )


def _value_of(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise _missing_column(name, [*map(str, values)], "it")
    return values[name]


def _check_columns(wanted: Sequence[str], columns: Sequence[str], source_label: str) -> None:
    for name in wanted:
        if name not in columns:
            raise _missing_column(name, columns, source_label)


def _missing_column(name: str, columns: Sequence[str], source_label: str) -> UsageError:
    known = ", ".join(repr(each) for each in columns if each) or "none"
    is_text = not name.strip() or set(name) & set("\"'\n")  # such as JSON in a prompt
    hint = ". Write a literal brace twice" if is_text else suggest(name, columns)
    return UsageError(f"{source_label} has no column {name!r}; it has {known:.300}{hint}")


def _as_values(row: Any) -> Mapping[str, Any]:
    """Return a row as a mapping from column names to values."""
    if isinstance(row, Mapping):
        return row
    if isinstance(row, BaseModel):
        return dict(row)
    return {"": row, VALUE: row}


def _of_pandas(
    frame: Any, columns: Sequence[str], positions: Sequence[int]
) -> Iterator[tuple[Any, Any]]:
    values = [frame.iloc[:, n] for n in positions]
    for label, *row in zip(frame.index, *values, strict=True):
        yield label, dict(zip(columns, row, strict=True))


def _of_polars(frame: Any, columns: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    for row in (
        frame.select(columns).iter_rows(named=True) if columns else ({} for _ in range(len(frame)))
    ):
        yield None, row


def _table_kind(rows: Any) -> str | None:
    """Return the library and class of a pandas or polars table, without importing them; None for other rows."""
    kinds = product(("pandas", "polars"), ("DataFrame", "Series", "LazyFrame"))
    return next((".".join(kind) for kind in kinds if is_of(rows, *kind)), None)
