"""Tables and arrays as the value of a step: stored with the run as bytes in a standard format.

In the run's JSON, the value is a file part, as in messages: a description, the format, and the bytes in base64.
So the value is private, and is copied and deleted with the run. pandas, polars, Arrow and numpy are never imported
to check a value. A body that runs again gets a copy of the step's value.
"""

from __future__ import annotations

import base64
import importlib
import io
import math
from collections.abc import Callable, Mapping
from typing import Any

from nbagent.core.base.errors import UsageError
from nbagent.core.base.file_parts import KEPT, file_part, in_bytes
from nbagent.core.base.messages import Json, freeze

from .tables import frame_of, is_of, is_plan

MAX_KEPT = 20_000_000
"""Maximum bytes of one stored value."""
MAX_VALUES = 100_000_000
"""Maximum values of a loaded table, or bytes of a loaded array; the header of untrusted bytes may declare more."""
_PARQUET = "application/vnd.apache.parquet"
_NPY = "application/x-npy"
_INSTEAD = "write it to a file in the step, and return the path"


def encode_table(value: Any) -> Json | None:
    """A table or an array in its stored JSON form; None for anything else.

    Raises:
        UsageError: the value cannot be stored; the message explains what to do instead.
    """
    frame, kind = frame_of(value), _kind(value)
    if frame is None and not is_of(value, "numpy", "ndarray"):
        return None
    if frame is not None and is_plan(frame):
        raise UsageError(f"A {kind} has no rows until it is computed. Call its .collect()")
    try:
        data = _array_bytes(value) if frame is None else _table_bytes(value, kind)
    except ImportError as error:
        raise UsageError(
            f"A {kind} is stored as Parquet, which needs pyarrow: pip install pyarrow. Or {_INSTEAD}"
        ) from error
    except Exception as error:  # raised by the value's library, or by its contents
        raise UsageError(
            f"This {kind} cannot be stored ({_why(error)}). Use columns of one plain type each, or {_INSTEAD}"
        ) from error
    if len(data) > MAX_KEPT:
        raise UsageError(
            f"This {kind} takes {in_bytes(len(data))}. The limit for a stored value is {in_bytes(MAX_KEPT)}. Instead, "
            f"{_INSTEAD}"
        )
    shape = " \u00d7 ".join(f"{n:,}" for n in value.shape) if frame is None else frame.size
    part = file_part(data, _NPY if frame is None else _PARQUET, f"{kind} of {shape}")
    return freeze({**part, KEPT: kind, "column": value.name if kind == "pandas.Series" else None})


def decode_table(plain: Mapping[str, Any]) -> Any:
    """The stored table or array, as a new copy.

    Raises:
        UsageError: the value's library is not installed, or the bytes are not valid.
    """
    kind = str(plain.get(KEPT))
    try:
        made = _decoded(kind, base64.b64decode(plain["data"], validate=True))
        return made.rename(plain.get("column")) if kind == "pandas.Series" else made
    except ImportError as error:
        raise UsageError(
            f"A stored {kind:.80} cannot be loaded: {error.name} is not installed"
        ) from error
    except Exception as error:  # raised by the library
        raise UsageError(f"The stored {kind:.80} cannot be read ({_why(error)})") from error


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"


def _kind(value: Any) -> str:
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__qualname__}"


def _array_bytes(value: Any) -> bytes:
    numpy = importlib.import_module("numpy")
    # npy does not store the rest of a subclass, such as a mask
    if type(value) is not numpy.ndarray:
        raise TypeError("only a plain numpy.ndarray can be stored. Use numpy.asarray(value)")
    out = io.BytesIO()
    numpy.save(out, value, allow_pickle=False)
    return out.getvalue()


def _table_bytes(value: Any, kind: str) -> bytes:
    """A table as Parquet. The bytes are loaded again and compared with the table.

    Raises:
        TypeError: the loaded table differs, or the kind cannot be stored. Libraries raise their own errors.
    """
    if kind not in _TABLES:
        raise TypeError(f"only {', '.join(_TABLES)} can be stored")
    if kind == "pandas.Series" and not isinstance(value.name, str | int | None):
        raise TypeError(f"its name is a {type(value.name).__name__}, not a string")
    library, out, table = kind.partition(".")[0], io.BytesIO(), _TABLES[kind](value)
    if library == "polars":
        table.write_parquet(out)
    else:
        parquet = importlib.import_module("pyarrow.parquet")
        if library == "pandas":
            _check_categories(table)
            table.to_parquet(out, engine="pyarrow")
        else:
            parquet.write_table(table, out)
    if not _TABLES[kind](_decoded(kind, out.getvalue())).equals(table):
        raise TypeError("it is not equal after storing and loading")
    return out.getvalue()


def _check_categories(table: Any) -> None:
    """Raise if there are unused categories, because Parquet would lose them."""
    for name, column in table.items():
        if hasattr(column, "cat") and len(column.dropna().unique()) < len(column.cat.categories):
            raise TypeError(
                f"column {str(name)[:80]!r} has unused categories. Remove them with .cat.remove_unused_categories()"
            )


_TABLES: dict[str, Callable[[Any], Any]] = {
    "pandas.DataFrame": lambda value: value,
    "pandas.Series": lambda value: value.to_frame("value"),
    "polars.DataFrame": lambda value: value,
    "polars.Series": lambda value: value.to_frame(),
    "pyarrow.Table": lambda value: value,
    "pyarrow.ChunkedArray": lambda value: importlib.import_module("pyarrow").table(
        {"value": value}
    ),
}
"""The classes that are stored as tables, each with the conversion of a value to a table."""


def _decoded(kind: str, data: bytes) -> Any:
    """The stored value that the bytes contain.

    Raises:
        ValueError: the header declares too many values, or the kind is unknown.
    """
    if kind == "numpy.ndarray":
        return _array(data)
    if kind not in _TABLES:
        raise ValueError("its type is unknown")
    library = kind.partition(".")[0]
    if library == "polars":
        polars = importlib.import_module("polars")
        columns = len(polars.read_parquet_schema(io.BytesIO(data)))
        (rows,) = polars.scan_parquet(io.BytesIO(data)).select(polars.len()).collect().row(0)
        _check_size(rows * columns)
        table = polars.read_parquet(io.BytesIO(data))
        return table if kind == "polars.DataFrame" else table.to_series(0)
    parquet = importlib.import_module("pyarrow.parquet")
    metadata = parquet.ParquetFile(io.BytesIO(data)).metadata
    _check_size(metadata.num_rows * metadata.num_columns)
    if library == "pandas":
        table = importlib.import_module("pandas").read_parquet(io.BytesIO(data), engine="pyarrow")
        return table if kind == "pandas.DataFrame" else table.iloc[:, 0]
    table = parquet.read_table(io.BytesIO(data))
    return table if kind == "pyarrow.Table" else table.column(0)


def _array(data: bytes) -> Any:
    numpy, file = importlib.import_module("numpy"), io.BytesIO(data)
    npy_format = numpy.lib.format
    read_header = (
        npy_format.read_array_header_1_0
        if npy_format.read_magic(file) == (1, 0)
        else npy_format.read_array_header_2_0
    )
    shape, _, dtype = read_header(file)
    _check_size(math.prod(shape) * dtype.itemsize)
    return numpy.load(io.BytesIO(data), allow_pickle=False)


def _check_size(size: int) -> None:
    if size > MAX_VALUES:
        raise ValueError(f"its header says {size:,} values or bytes, which is too many")
