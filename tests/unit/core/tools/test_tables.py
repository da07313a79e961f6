"""Tables in prompts, chats, magics and results: the same bounded summary; all rows are sent only as a file."""

from __future__ import annotations

import base64
import re
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import nbagent as nb
from nbagent.core.tools import tables
from nbagent.core.tools.attachments import prompt_content
from nbagent.notebook import variables
from nbagent.notebook.magics import _filled
from nbagent.notebook.view.view import SingleRunView

call = nb.ScriptedModel.call
MAILS = [f"p{n}@example.org" for n in range(14_000)]
DATA = {"id": range(14_000), "mail": [None, *MAILS[1:]], "paid": 1.5}
TABLES = {
    "pandas": pd.DataFrame(DATA),
    "polars": pl.DataFrame({**DATA, "paid": [1.5] * 14_000}),
    "pyarrow": pa.table({**DATA, "id": [*range(14_000)], "paid": [1.5] * 14_000}),
}


def texts_of(parts):
    """The text of a prompt, and the summaries of its tables by name."""
    text = "".join(p["text"] for p in parts if p["type"] == "text")
    named = [p for p in parts if p["type"] == "file"]
    return text, {p["name"]: base64.b64decode(p["data"]).decode() for p in named}


@pytest.mark.parametrize("library", TABLES)
async def test_c415_a_table_has_the_same_summary_however_it_is_passed(library, monkeypatch):
    """In a prompt's list, a chat's box, %%agent and a tool's result, with the table's name."""
    orders = TABLES[library]
    monkeypatch.setattr(variables.kernel, "variables", lambda: {"orders": orders})
    listed = texts_of(prompt_content(["look at this", orders]))
    boxed = texts_of([file.part for file in variables.mentioned("look at @orders")])
    filled = texts_of(
        prompt_content(_filled("Who unstored_end in {orders}, {orders}?", {"orders": orders}))
    )
    told = tables.table_summary(orders)
    assert listed == ("look at this", {"@orders": told})
    assert boxed == ("", {"@orders": told})
    assert filled == ("Who unstored_end in @orders, @orders?", {"@orders": told})
    assert told.startswith(f"table ({library}.")
    assert "of 14,000 rows \u00d7 3 columns\n" in told
    assert ", 1 missing" in told
    assert [line for line in told.splitlines() if "example.org" in line][-1].startswith("4\tp4@")
    assert len(told) < 600

    def load() -> object:
        return orders

    model = nb.ScriptedModel([call("load"), "done"])
    run = nb.Agent(model, tools=[load]).run(["look", orders], show=False)
    await run
    result = run.calls["load"][-1].output
    assert result.splitlines()[0] == told.splitlines()[0]
    assert "First 60 of 14,000 rows:" in result
    view = SingleRunView(run.id)
    for event in run.journal:
        view.apply(event)
    view.flush(time.monotonic())
    assert view.snapshot().head.prompt == "look"  # the card's heading has no summary


def test_c415_the_summary_of_a_table_is_bounded_and_shows_hidden_characters():
    """Long, invisible, nested and many names and values; missing values are counted only in the first rows."""
    hostile = pd.DataFrame(
        {
            "a\n\x1b[2J" + "x" * 100_000: ["\u202e" + "y" * 10_000_000, [[["z"] * 10**6]] * 3],
            "plain": ["", " north"],
            ("two", "levels"): [pd.NaT, 10**5_000],
        }
    )
    told = tables.table_summary(hostile)
    assert len(told) < 1_000
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert "plain: str" in told
    assert '""\t' in told
    assert '" north"' in told
    wide = tables.table_summary(pd.DataFrame(np.zeros((3, 50_000))))
    assert "… 49,940 more columns" in wide
    assert len(wide) <= tables.MAX_SUMMARY + 100
    large = pd.DataFrame({"n": np.zeros(30_000_000, "int8")})
    large.loc[0, "n"] = 1
    seen = []
    frame = tables.frame_of(large)
    missing = frame.missing
    frame.missing = lambda columns, rows: seen.append(rows) or missing(columns, rows)
    assert "no value is missing in the first 20,000,000 rows" in tables.summary(frame)
    assert seen == [tables.MAX_COUNTED]


def test_c415_a_meaningful_index_becomes_columns_and_a_query_plan_has_no_rows():
    """Groups by two keys keep both; a LazyFrame is not computed."""
    keys = pd.MultiIndex.from_tuples([("n", 1), ("s", 2)], names=["region", None])
    told = tables.table_summary(pd.DataFrame({"sum": [3, 4]}, index=keys))
    assert told.endswith("All its rows:\nregion\tlevel_1\tsum\nn\t1\t3\ns\t2\t4")

    def never(_: object) -> object:
        raise AssertionError("computed")

    plan = pl.LazyFrame({"a": [1]}).map_batches(never, schema={"a": pl.Int64})
    assert tables.table_summary(plan).endswith(
        "a: Int64\nIts rows are unknown until .collect() computes them"
    )
    assert tables.table_summary(SimpleNamespace(columns=[], itertuples=1)) is None


@pytest.mark.parametrize("library", TABLES)
def test_c416_all_rows_are_sent_only_as_a_file_with_a_warning_about_its_tokens(library):
    """The repr and a warning at the caller's line have the number; a small table gives no warning."""
    file = nb.File(TABLES[library])
    tokens = int(re.search(r"about ([\d,]+) tokens", repr(file))[1].replace(",", ""))
    assert 150_000 < tokens < 260_000
    assert file.data.count(b"\n") == 14_001
    agent = nb.Agent(nb.ScriptedModel(["done", "done"]))
    with pytest.warns(
        UserWarning, match=rf"about {tokens:,} tokens .*notebook_tools\(df\)"
    ) as told:
        agent.run_sync(["look", file])
    assert [one.filename for one in told] == [__file__]
    with warnings.catch_warnings(action="error"):
        agent.run_sync(["look", nb.File(TABLES["pandas"].head())])


def test_c416_a_table_that_has_no_csv_form_is_refused_with_an_alternative():
    """Too many values, nested columns, a plan."""
    for value, told in (
        (pd.DataFrame({"a": range(1_000_001)}), "too large .*notebook_tools"),
        (pl.DataFrame({"a": [[1]]}), "cannot be written as CSV"),
        (pl.LazyFrame({"a": [1]}), r"Call its \.collect\(\)"),
    ):
        with pytest.raises(nb.errors.UsageError, match=told):
            nb.File(value)


STAYS = ["x_{df}", r"\frac{df}{2}", "{{df}}", "{nothing}", '{"df": 1}', "{df: 1}", "{pd}", "{ df }"]


def test_c417_a_variable_in_braces_of_a_plain_prompt_leads_to_a_warning(monkeypatch):
    """It is sent unchanged; the warning is at the caller's line. Other prompts are not checked."""
    df, limit = TABLES["pandas"], 3
    agent = nb.Agent(nb.ScriptedModel(lambda messages: messages[-1]["content"][0]["text"]))
    for prompt, told in (
        ("look at {df}", r"contains \{df\} as plain text.*\['…', df\].*%%agent"),
        ("up to {limit:.2f} of {df.mail}", r"\{limit\}, \{df\}"),
        ("up to {limit}", r"write f'…'"),
    ):
        with pytest.warns(UserWarning, match=told) as seen:
            assert agent.run_sync(prompt).text == prompt
        assert [one.filename for one in seen] == [__file__]
    with warnings.catch_warnings(action="error"):
        for prompt in (*STAYS, _filled("{{df}} {limit}", {"limit": limit})):
            agent.run_sync(prompt)
        monkeypatch.setattr("nbagent.core.tools.attachments._hint_at_braces", None)
        agent.run_sync("no braces here")
    assert (len(df), limit) == (14_000, 3)


@pytest.mark.parametrize(
    ("rows", "columns", "size"),
    [
        (1, 1, "1 row \u00d7 1 column"),
        (2, 1, "2 rows \u00d7 1 column"),
        (0, 2, "0 rows \u00d7 2 columns"),
    ],
)
def test_c681_one_row_and_one_column_are_not_plural(rows, columns, size):
    """The size of a table in words."""
    told = tables.table_summary(pd.DataFrame({f"c{n}": [1] * rows for n in range(columns)}))
    assert told.splitlines()[0] == f"table (pandas.DataFrame) of {size}"
    assert tables.table_summary(pd.Series([1])).startswith("column (pandas.Series) of 1 value\n")
