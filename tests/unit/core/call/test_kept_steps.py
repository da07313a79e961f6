"""Tables and arrays as values of steps: stored with the run and restored when the body runs again, or refused."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import nbagent as nb
from nbagent.core.base.errors import UsageError
from nbagent.core.base.file_parts import KEPT
from nbagent.core.base.messages import dumps
from nbagent.core.tools import step_values
from nbagent.notebook.view.view import SingleRunView

FRAME = pd.DataFrame(
    {
        "a": [1, 2],
        "s": ["x", None],
        "t": pd.date_range("2026", periods=2, tz="UTC"),
        "c": pd.Categorical(["u", "v"]),
        "f": [1.5, float("nan")],
    },
    index=pd.Index(["i", "j"], name="k"),
)
GIVEN: dict[str, Any] = {
    "a table": FRAME,
    "with rows of two levels": FRAME.set_index("s", append=True),
    "without rows": FRAME.iloc[:0].drop(columns="c"),
    "a column": FRAME["t"],
    "a column of categories": FRAME["c"],
    "a column without a name": FRAME["a"].rename(None),
    "a table of polars": pl.DataFrame({"a": [1, None], "l": [[1], [2, 3]]}),
    "a column of polars": pl.Series("n", [1, None]),
    "a table of Arrow": pa.table({"a": [1, None], "d": [{"x": 1}, {"x": 2}]}),
    "a column of Arrow": pa.chunked_array([[1], [2]]),
    "an array": np.arange(6.0).reshape(2, 3),
    "an array of dates": np.array(["2026-01-02"], "datetime64[D]"),
}


@pytest.mark.parametrize("given", GIVEN)
def test_c424_a_table_or_an_array_is_restored_unchanged(given: str) -> None:
    """A round trip through JSON keeps index, types and names; the object is a new one."""
    value = GIVEN[given]
    part = step_values.encode_table(value)
    assert dumps(part)
    again = step_values.decode_table(part)
    assert type(again) is type(value)
    if isinstance(value, np.ndarray):
        np.testing.assert_array_equal(again, value)
        assert again.dtype == value.dtype
    else:
        assert again.equals(value)
        assert getattr(again, "name", None) == getattr(value, "name", None)
    assert again is not value
    assert len(repr(part)) < 1_000  # no repr has the bytes of a file


SCRIPT = """
import asyncio, os, sys
import pandas as pd, nbagent as nb

@nb.flow
async def clean(ctx: nb.ToolContext) -> str:
    def load():
        print("loaded", flush=True)
        return pd.DataFrame({"day": pd.to_datetime(["2026-01-02", None]), "n": [1, 2]})
    table = await ctx.step("load", load)
    table["seen"] = True  # of this start alone
    await ctx.ask(nb.Confirm(message="go on?"))
    return f"{table.n.sum()} {table.day.dtype} {[*table.columns]} {[*ctx.steps['load'].columns]}"

async def main():
    store = sys.argv[1]  # its place is enough
    if sys.argv[2] == "begin":
        run = clean.with_options(store=store, attended=True, show=False, id="r").run()
        await run.settled()
        os._exit(0)
    run = await nb.open_run("r", agent=clean, store=store, attended=True, show=False)
    await run.settled()
    run.respond(run.interrupts[0], True)
    print((await run).output)

asyncio.run(main())
"""


def test_c424_a_step_of_another_process_returns_its_table_again(tmp_path: Path) -> None:
    """The step runs once, the table is only in the store, and the next process gets the table as after the step."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "runs").mkdir()
    place, root = tmp_path / "runs" / "runs.db", str(Path(nb.__file__).parents[1])
    told = [
        subprocess.run(
            [sys.executable, script, place, phase],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": root},
        ).stdout
        for phase in ("begin", "go on")
    ]
    assert told[0] == "loaded\n"
    assert told[1] == "3 datetime64[us] ['day', 'n', 'seen'] ['day', 'n']\n"
    assert {p.name for p in place.parent.iterdir()} <= {"runs.db", "runs.db-wal", "runs.db-shm"}
    if os.name == "posix":
        assert place.stat().st_mode & 0o777 == 0o600


async def test_c424_a_card_shows_a_summary_of_a_stored_table_and_not_its_bytes() -> None:
    """The step's row, Markdown and the journal's repr are short; sync bodies store tables too."""

    @nb.flow
    def load(ctx: nb.ToolContext) -> list[str]:
        table = ctx.step_sync("load", lambda: FRAME)
        assert table is FRAME
        return [str(len(table)), str(len(ctx.steps["load"]))]

    run = load.with_options(show=False).run()
    assert (await run).output == ["2", "2"]
    view = SingleRunView(run.id)
    for event in run.journal:
        view.apply(event)
    view.flush(time.monotonic())
    words = "[pandas.DataFrame of 2 rows \u00d7 5 columns, "
    assert words in str([getattr(item, "result", "") for item in view.snapshot().items])
    assert words in run.to_markdown()
    [kept_event] = [event for event in run.journal if event.type == "step_finished"]
    assert len(repr(kept_event)) < 1_000


class Mine(pd.DataFrame):
    """A subclass, which would be another class after loading."""


REFUSED = {
    "values of several types": (pd.DataFrame({"a": [1, "x"]}), "write it to a file in the step"),
    "lists, which come back as arrays": (
        pd.DataFrame({"a": [[1], [2]]}),
        "it is not equal after storing and loading",
    ),
    "categories that no value has": (FRAME.iloc[:1], r"'c' has unused categories.*remove_unused"),
    "two columns of one name": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Duplicate"),
    "a column with a name that JSON has not": (FRAME["a"].rename(("x", 1)), "its name is a tuple"),
    "a masked array": (np.ma.array([1, 2], mask=[0, 1]), r"Use numpy\.asarray"),
    "a plan": (pl.LazyFrame({"a": [1]}), r"Call its \.collect\(\)"),
    "objects": (np.array([object()], dtype=object), "cannot be stored"),
    "a class of one's own": (Mine({"a": [1]}), "can be stored"),
    "too much": (np.zeros(2_600_000), r"20\.8 MB. The limit .* 20\.0 MB.* return the path"),
    "a name that stands for a table": ({KEPT: "pandas.DataFrame"}, "Rename that key"),
    "what is no data": (object(), "must be JSON"),
}


@pytest.mark.parametrize("given", REFUSED)
async def test_c425_a_value_that_cannot_be_stored_is_refused_with_what_to_do(given: str) -> None:
    """The step raises before the body continues: a value is restored unchanged, or not stored."""
    value, told = REFUSED[given]

    @nb.flow
    async def load(ctx: nb.ToolContext) -> str:
        await ctx.step("load", lambda: value)
        return "went on"

    run = load.with_options(show=False).run()
    with pytest.raises(nb.NbagentError, match=told):
        await run
    assert not [event for event in run.journal if event.type == "step_finished"]


def _npy(shape: tuple[int, ...]) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("numpy.ndarray", _npy((10**12,))),
        ("numpy.ndarray", b"\x93NUMPY\x01\x00"),
        ("numpy.ndarray", b"\x80\x04N."),
        ("pandas.DataFrame", b"PAR1" * 9),
        ("polars.DataFrame", b"nothing"),
        ("builtins.eval", b""),
    ],
)
def test_c425_bytes_that_do_not_match_their_type_are_refused(kind: str, data: bytes) -> None:
    """Records of others can have any content: nothing is unpickled, and sizes are checked before use."""
    part = {KEPT: kind, "data": base64.b64encode(data).decode()}
    with pytest.raises(UsageError, match=r"cannot be read"):
        step_values.decode_table(part)
