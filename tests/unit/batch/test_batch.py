"""``nb.map``: one agent over many rows, each a run of its own."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pandas as pd
import polars as pl
import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.batch import work
from nbagent.batch.batch import work_of
from nbagent.batch.listing import read_batch
from nbagent.core.base.events import CallRequested, ModelResponded, RunFailed, ToolStarted
from nbagent.core.base.model import Usage
from nbagent.core.base.process import this_process
from nbagent.core.run.session import all_sessions
from nbagent.core.stored.inbox import InboxEntry
from nbagent.notebook.view.batch import BatchView
from tests.until import until

call = nb.ScriptedModel.call


def prompt_of(messages: Any) -> str:
    """The prompt of a request."""
    return str(next(m for m in reversed(messages) if m["role"] == "user")["content"][0]["text"])


class Rows:
    """An agent that counts its requests and the calls of its tool."""

    def __init__(self, reply: Any = None, *, cost: float = 0.0, **options: Any) -> None:
        self.asked: Counter[str] = Counter()
        self.bodies: Counter[int] = Counter()
        self.at_once = self.most = 0
        self.takes = 0.001
        """Seconds until a response."""
        self._reply = reply or (lambda text: f"did {text}")
        usage = Usage(10, 5, cost)
        options.setdefault("store", nb.MemoryStore())
        self.agent = nb.Agent(nb.ScriptedModel(self._step, usage=usage), name="rows", **options)

    async def _step(self, messages: Any) -> Any:
        self.asked[prompt_of(messages)] += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(self.takes)
        self.at_once -= 1
        if messages[-1]["role"] == "tool":
            return "paid"
        return self._reply(prompt_of(messages))


def paying(**options: Any) -> Rows:
    """An agent whose tool needs an approval for every third row."""

    def reply(text: str) -> Any:
        n = int(text.rsplit(maxsplit=1)[-1])
        why = "duplicate" if n % 2 else "late"
        return call("pay", amount=n, why=why, note=f"row {n}") if n % 3 == 0 else "nothing to pay"

    rows = Rows(reply, **options)

    @rows.agent.tool(approval=True)
    def pay(amount: int, why: str, note: str) -> str:
        rows.bodies[amount] += 1
        return "ok"

    return rows


async def test_c450_each_row_of_a_table_is_a_run_and_the_table_returns_with_the_results():
    """Rows keep their index and order, outputs become columns, and the store finds each row by its key."""

    class Label(BaseModel):
        label: str
        score: float

    rows = Rows(lambda text: f'{{"label": "{text[-1]}", "score": 0.5}}', output_type=Label)
    table = pd.DataFrame(
        {"text": ["a", "b", "c"], "order": [7, 8, 9], "status": ["x", "y", "z"]}, index=[30, 10, 20]
    )
    batch = nb.map(rows.agent, table, prompt="Which? {text}", id="march", key="order")
    assert await batch is batch
    frame = batch.to_frame()
    assert list(frame.index) == [30, 10, 20]
    assert list(frame["text"]) == list(frame["label"]) == ["a", "b", "c"]
    assert list(frame["status"]) == ["x", "y", "z"]
    assert list(frame["status_of_run"]) == ["completed"] * 3
    assert list(frame["run"]) == ["march:7", "march:8", "march:9"]
    assert batch[8].output == Label(label="b", score=0.5)
    assert batch.counts == {
        **dict.fromkeys(("interrupted", "running", "stuck", "failed", "cancelled", "left"), 0),
        "completed": 3,
    }
    first = rows.agent.store.read("march:8")[0]
    assert (first.row.batch, first.row.key, first.row.number) == ("march", "8", 1)
    assert [row.key async for row in batch] == ["7", "8", "9"]
    again = nb.map(
        rows.agent, pl.from_pandas(table), prompt="Which? {text}", id="april", key="order"
    )
    assert (await again).to_frame()["label"].to_list() == ["a", "b", "c"]


async def test_c450_rows_of_any_kind_are_read_only_as_fast_as_they_can_start():
    """A generator is read only as rows can start; rows can be dicts, models and plain values."""

    class Order(BaseModel):
        number: int

    rows, ahead = Rows(), []

    def given() -> Any:
        for n in range(40):
            ahead.append(n - sum(rows.asked.values()))
            yield {"n": n}

    await nb.map(rows.agent, given(), prompt="row {n}", id="generated", concurrency=4)
    assert len(rows.asked) == 40
    assert max(ahead) <= 4
    assert rows.most == 4
    odd = "a key of spaces / and more than a run's id takes" * 3
    models = [Order(number=1), Order(number=2)]
    batch = await nb.map(
        rows.agent,
        models,
        prompt=lambda row: f"order {row.number}",
        id="models",
        key=lambda _: odd + str(_.number),
    )
    assert batch[odd + "1"].output == "did order 1"
    long = await nb.map(rows.agent, ["k" * 101], prompt="long {}", id="long", key=lambda key: key)
    assert long["k" * 101].output.startswith("did long")
    assert len(long["k" * 101].run_id) <= 100
    assert (await nb.map(rows.agent, ["x", "y"], prompt="say {}", id="plain"))[
        1
    ].output == "did say y"
    series = pd.Series(["p", "q"], index=["i", "j"], name="word")
    assert (await nb.map(rows.agent, series, prompt="say {word}", id="series"))[
        "j"
    ].output == "did say q"
    with pytest.raises(TypeError, match="async for row in batch"):
        list(batch)


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        (
            pd.DataFrame({"text": ["a"]}),
            {"prompt": "{txt}"},
            "no column 'txt'.*Did you mean 'text'",
        ),
        ([{"text": "a"}], {"prompt": "{text}", "key": "id"}, "no column 'id'"),
        (
            pd.DataFrame({"text": ["a", None, float("nan")]}),
            {"prompt": "{text}"},
            "'text' is empty in 2 of 3 rows, first in row 1. Fill or drop",
        ),
        (pl.DataFrame({"n": [1.0, float("nan"), None]}), {"prompt": "{n}"}, "empty in 2 of 3"),
        (pd.DataFrame({"n": [1], "m": [None]}), {"prompt": "{n} {m}"}, "'m' is empty in 1 of 1"),
        (pd.Series(["a", pd.NA], name="text"), {"prompt": "{text}"}, "empty in 1 of 2"),
        ([{"text": "a"}], {"prompt": "all the same"}, "no {column}"),
        ([{"text": "a"}], {"prompt": "{text"}, "is not a valid template"),
        ([{"n": 1}], {"prompt": "{n:2000000000}"}, r"^{n:2000000000} of the prompt: .* too wide"),
        ([{"n": 1}], {"prompt": "a {n!r:.20000}"}, "of the prompt: .* too wide"),
        ("text", {"prompt": "{text}"}, r"rows must be a DataFrame.*Use pd.read_csv\(path\)"),
        (
            [{"n": 1}],
            {"prompt": 'As {"x": 1} {n}'},
            "no column '\"x\"'.*Write a literal brace twice",
        ),
        (pd.DataFrame(), {"prompt": "{n}"}, "no column 'n'; it has none$"),
        (pl.LazyFrame({"text": ["a"]}), {"prompt": "{text}"}, "collect"),
        ([{"text": "a"}], {"prompt": "{text}", "id": "a:b"}, "A batch id must be"),
        (
            [{"text": "a"}],
            {"prompt": "{text}", "budget": nb.Budget(seconds=3)},
            "Set seconds= for each row",
        ),
        ([{"text": "a"}], {"prompt": "{text}", "on_error": "go"}, "'keep' or 'stop'"),
    ],
)
async def test_c451_an_invalid_argument_is_refused_before_anything_starts(rows, options, says):
    """The error names the argument, and the model gets no request."""
    of = Rows()
    with pytest.raises(nb.errors.UsageError, match=says):
        nb.map(of.agent, rows, **{"id": "march", **options})
    assert not of.asked


def test_a_flow_is_told_how_to_run_several_times():
    """``nb.map`` takes agents only."""

    @nb.flow
    def shout(text: str) -> str:
        return text.upper()

    with pytest.raises(nb.errors.UsageError, match=r"use await asyncio\.gather\(\*\(flow\.run"):
        nb.map(shout, "ab", prompt="{}", id="flows")


async def test_c451_a_duplicate_key_and_a_row_without_its_column_or_value_are_named():
    """A table's rows are checked before the first run, a generator's rows as they are read."""
    rows = Rows()
    for given, asked in ((list("abcb"), 0), (iter("abcb"), 1)):
        with pytest.raises(nb.errors.UsageError, match="Rows 1 and 3 have the same key 'b'"):
            await nb.map(rows.agent, given, prompt="{}", id=f"b{asked}", key=lambda it: it)
        assert rows.asked["b"] == asked
    with pytest.raises(nb.errors.UsageError, match=r"Row 1 \('1'\): it has no column 'n'"):
        await nb.map(rows.agent, ({k: 1} for k in "nm"), prompt="{n}", id="holes")
    with pytest.raises(nb.errors.UsageError, match=r"Row 1 \('1'\): its column 'n' is empty"):
        await nb.map(rows.agent, ({"n": n} for n in (1, None)), prompt="{n}", id="empty")
    with pytest.raises(nb.errors.UsageError, match=r"The key of row 1 is not .* '\\udc80'"):
        await nb.map(rows.agent, ["a", "\udc80"], prompt="{}", id="halves", key=lambda it: it)
    frame = pd.DataFrame({"k": [1.0, None], "n": [1, 2]})
    with pytest.raises(nb.errors.UsageError, match="Row 1 has no key: nan"):
        await nb.map(rows.agent, frame, prompt="{n}", id="gaps", key="k")


async def test_c451_half_a_character_in_a_cell_is_escaped_as_in_any_prompt():
    """The row runs, and the same call finds it done."""
    rows = Rows()
    for _ in range(2):
        batch = await nb.map(rows.agent, [{"n": "a\ud800"}], prompt="row {n}", id="halves")
        assert batch.counts["completed"] == 1
    assert rows.asked == {r"row a\ud800": 1}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_c452_the_same_call_continues_the_batch_and_asks_nothing_twice(kind, tmp_path):
    """Rows may be reordered and added; a changed prompt is an error, and starts nothing."""
    store = nb.MemoryStore() if kind == "memory" else nb.SQLiteStore(tmp_path / "runs.db")
    rows = Rows(store=store)
    given = [{"k": f"k{n}", "n": n} for n in range(30)]

    def begin(these: Any, prompt: str = "row {n}", **options: Any) -> Any:
        return nb.map(rows.agent, these, prompt=prompt, id="march", key="k", **options)

    await begin(given)
    batch = await begin([*reversed(given), {"k": "new", "n": 99}])
    assert rows.asked["row 99"] == 1
    assert set(rows.asked.values()) == {1}
    assert batch.counts["completed"] == 31
    assert batch.usage.input_tokens == 310
    assert [row.key for row in batch.rows][:2] == ["k29", "k28"]
    changed = [*given[:3], {"k": "k3", "n": 333}, *given[4:], {"k": "newer", "n": 100}]
    with pytest.raises(
        nb.errors.UsageError, match=r"1 row of the batch 'march'.*'k3'.*changed='again'"
    ):
        await begin(changed)
    assert rows.asked["row 100"] == 0
    assert (await begin(changed, changed="keep"))["k3"].output == "did row 3"
    assert (await begin(changed, changed="again"))["k3"].output == "did row 333"
    assert (await begin(changed))["k3"].run_id != "march:k3"
    opened = await nb.open_batch("march", store=store)
    assert (opened.counts["completed"], opened["k3"].output) == (32, "did row 333")
    assert max(rows.asked.values()) == 1
    other = Rows(store=store)
    other.agent.name = "other"
    with pytest.raises(nb.errors.UsageError, match="belongs to the agent 'rows', not to 'other'"):
        await nb.map(other.agent, given, prompt="row {n}", id="march", key="k")
    with pytest.raises(nb.errors.UsageError, match="has no batch 'may'"):
        await nb.open_batch("may", agent=rows.agent)


async def test_c452_done_rows_are_read_with_one_listing(tmp_path, monkeypatch):
    """Continuing reads no journal of a completed row and asks no model."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    rows = Rows(store=store)
    await nb.map(rows.agent, range(500), prompt="row {}", id="march", concurrency=50)
    read: list[str] = []
    monkeypatch.setattr(
        nb.SQLiteStore,
        "read",
        lambda self, run_id, start=0, of=nb.SQLiteStore.read: (
            read.append(run_id) or of(self, run_id, start)
        ),
    )
    batch = await nb.map(rows.agent, range(500), prompt="row {}", id="march")
    assert batch.counts["completed"] == 500
    assert set(read) <= {"march"}
    assert sum(rows.asked.values()) == 500
    assert list(batch.to_frame()["output"])[499] == "did row 499"


class Plain:
    """A store with only the required methods."""

    def __init__(self) -> None:
        self._events = nb.MemoryStore()

    def append(self, run_id: str, events: Any, expected: int) -> None:
        self._events.append(run_id, events, expected)

    def read(self, run_id: str, start: int = 0) -> Any:
        return self._events.read(run_id, start)

    def run_ids(self) -> list[str]:
        return self._events.run_ids()


async def test_outputs_are_read_from_a_store_without_ends() -> None:
    rows = Rows(store=Plain())
    batch = await nb.map(rows.agent, range(3), prompt="row {}", id="plain")
    assert list(batch.to_frame()["output"]) == ["did row 0", "did row 1", "did row 2"]


async def test_c453_a_failed_row_is_retried_and_then_kept_or_ends_the_batch():
    """Tries of ``retry`` count across restarts; with ``on_error="stop"`` no more rows start."""
    failing = {"row 1": 1, "row 2": 9, "row 3": 3}

    def reply(text: str) -> Any:
        if failing.get(text, 0):
            failing[text] -= 1
            return nb.errors.ModelError("no")
        return "ok"

    rows = Rows(reply)
    batch = await nb.map(rows.agent, range(5), prompt="row {}", id="march", retry=2)
    assert (batch.counts["completed"], batch.counts["failed"]) == (3, 2)
    assert [row.key for row in batch.failures] == ["2", "3"]
    assert "ModelError: no" in batch[2].error
    assert list(batch.to_frame()["error"].isna()) == [True, True, False, False, True]
    await nb.map(rows.agent, range(5), prompt="row {}", id="march", retry=2)
    assert rows.asked["row 2"] == 3  # no try is left
    batch = nb.map(rows.agent, range(5), prompt="row {}", id="march", retry=3)
    await batch
    assert (rows.asked["row 2"], batch[3].status) == (4, "completed")
    failing["row 2"] = 0
    assert batch.retry() == 1
    await batch
    assert batch.counts["completed"] == 5

    rows = Rows(lambda text: nb.errors.ModelError("no") if text == "row 1" else "ok")
    batch = nb.map(
        rows.agent, range(50), prompt="row {}", id="stops", on_error="stop", concurrency=2
    )
    with pytest.raises(nb.errors.RunError, match="Row '1' failed, and on_error='stop'"):
        await batch
    assert (batch.status, sum(rows.asked.values()) < 10) == ("failed", True)


@pytest.mark.parametrize("limit", ["cost", "tokens"])
async def test_c454_a_budget_for_all_rows_counts_across_restarts(limit):
    """Rows of equal cost never exceed the budget: a running row counts as much as the dearest row."""
    rows = Rows(cost=0.5)
    budget = nb.Budget(cost=10) if limit == "cost" else nb.Budget(tokens=300)

    def begin(budget: nb.Budget) -> Any:
        return nb.map(rows.agent, range(100), prompt="row {}", id="march", budget=budget)

    for _ in range(2):
        batch = begin(budget)
        with pytest.raises(nb.errors.BudgetExceeded, match=r"budget of .* for the batch 'march'"):
            await batch
        assert sum(rows.asked.values()) == 20
    more = nb.Budget(cost=15) if limit == "cost" else nb.Budget(tokens=450)
    with pytest.raises(nb.errors.BudgetExceeded, match="70 rows have not started"):
        await begin(more)
    assert batch.status == "failed"
    assert (await begin(nb.Budget(cost=1000))).cost == 50.0


def flaky(store: Any) -> nb.Agent:
    """An agent that pays a dollar for a turn, and fails in the next, again and again."""
    asked: Counter[str] = Counter()

    def reply(messages: Any) -> Any:
        asked[prompt_of(messages)] += 1
        if asked[prompt_of(messages)] % 2 == 0:
            return nb.errors.ModelError("no")
        return call("look")

    model = nb.ScriptedModel(reply, usage=Usage(10, 5, 1.0))
    agent = nb.Agent(model, name="rows", store=store, max_turns=100)

    @agent.tool
    def look() -> str:
        return "nothing"

    return agent


@pytest.mark.parametrize("limit", ["cost", "tokens"])
@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("is_sent", [False, True], ids=["here", "workers"])
async def test_c454_retries_of_rows_count_against_the_budget(is_sent, concurrency, limit, tmp_path):
    """By themselves, by ``batch.retry`` and by the same call: only rows that were running may exceed the budget."""
    with ThreadPoolExecutor(4) as pool, nb.SQLiteStore(tmp_path / "runs.db") as store:
        for dollars in (3, 20):
            budget = nb.Budget(cost=dollars) if limit == "cost" else nb.Budget(tokens=15 * dollars)
            given: Any = {"id": "march", "retry": 19, "concurrency": concurrency, "budget": budget}
            given |= {"prompt": "row {}", "executor": pool if is_sent else None}
            agent = flaky(store)
            for _ in range(2):
                batch = nb.map(agent, range(8), **given)
                for tries in range(2):
                    with pytest.raises(nb.errors.BudgetExceeded):
                        await asyncio.wait_for(batch, 30)
                    assert batch.retry() if tries == 0 else True
                # at first, no cost is known
                assert dollars <= batch.cost <= max(dollars, concurrency)


@pytest.mark.parametrize("is_sent", [False, True], ids=["here", "workers"])
async def test_c453_a_row_that_cannot_be_retried_has_ended(is_sent, tmp_path):
    """A call was running in a third process when its run failed: it may have taken effect, so nothing tries again."""
    with ThreadPoolExecutor(4) as pool, nb.SQLiteStore(tmp_path / "runs.db") as store:
        rows = Rows(store=store)
        await nb.map(rows.agent, [0], prompt="row {}", id="other")
        first: Any = store.read("other:0")[0]
        first = replace(first, row=replace(first.row, batch="march"))
        called = ModelResponded(at=1.0, calls=(CallRequested(id="c", name="look", input={}),))
        started = ToolStarted(at=1.0, call_id="c", attempt=1, owner="elsewhere", input={})
        failed = RunFailed(at=1.0, error="StoreError", message="no", owner=this_process())
        store.append("march:0", [first, called, started, failed], 0)
        executor = pool if is_sent else None
        batch = nb.map(rows.agent, [0], prompt="row {}", id="march", retry=3, executor=executor)
        await asyncio.wait_for(batch, 30)
        assert (batch[0].status, len(store.read("march:0"))) == ("failed", 4)
        assert [row.key async for row in batch] == ["0"]


async def test_c453_a_row_that_fails_after_its_batch_is_left_to_the_next_call():
    """Which reads it from the store: another process may have continued it."""
    failing = asyncio.Event()

    async def reply(_messages: Any) -> Any:
        await failing.wait()
        raise nb.errors.ModelError("no")

    agent = nb.Agent(nb.ScriptedModel(reply), name="rows", store=nb.MemoryStore())

    def given() -> Any:
        yield 0
        raise ValueError("torn")

    batch = nb.map(agent, given(), prompt="row {}", id="march", retry=1)
    await until(lambda: work_of(batch).failure is not None)
    failing.set()
    with pytest.raises(ValueError, match="torn"):
        await batch
    assert (batch[0].status, len(batch.store.read("march:0"))) == ("failed", 2)
    assert not work_of(batch)._due


async def documents_of(store: Any) -> dict[str, Any]:
    """The documents of a batch ``march`` of other rows, by run id: row 4 waits for an answer."""
    other = Rows(lambda text: call("look") if text == "row 4" else "other", store=store, cost=9.0)

    @other.agent.tool(approval=True)
    def look() -> str:
        return "nothing"

    given: Any = {"prompt": "row {}", "id": "march", "attended": True, "show": False}
    await nb.map(other.agent, range(5), **given, budget=nb.Budget(cost=1000))
    await other.agent.run("plain", id="march:plain", show=False)
    return {run_id: nb.export_run(run_id, store=store) for run_id in store.run_ids()}


def import_as(run_id: str, document: Any, store: Any) -> None:
    """Import a run with this id."""
    runs = [{**document["runs"][0], "id": run_id}]
    nb.import_run({**document, "id": run_id, "runs": runs}, store=store, unverified=True)


@pytest.mark.parametrize("is_sent", [False, True], ids=["here", "workers"])
async def test_c497_an_imported_run_is_no_row_of_a_batch_that_has_started(is_sent, tmp_path):
    """Whatever its id and its row claim to be, and while the batch runs too: each row runs here, and counts alone."""
    forged = await documents_of(nb.MemoryStore())
    with ThreadPoolExecutor(4) as pool, nb.SQLiteStore(tmp_path / "runs.db") as store:
        rows, seen = Rows(store=store, cost=1.0), []

        def prompt(n: int) -> str:
            if n == 6 and n not in seen:  # after the batch was read
                for run_id, of in [("march:6", "march:1"), ("march:7", "march:plain")]:
                    import_as(run_id, forged[of], store)
            seen.append(n)
            return f"row {n}"

        given: Any = {"prompt": prompt, "id": "march", "executor": pool if is_sent else None}
        await nb.map(rows.agent, range(2), **given)
        for run_id in ("march:2", "march:4", "march:plain"):
            nb.import_run(forged[run_id], store=store)
        for run_id, of in [
            ("march:@2:1", "march:1"),
            ("march:3", "march:plain"),
            ("march:x", "march:0"),
            ("march:@2", "march"),
            ("march:@3", "march"),
        ]:
            import_as(run_id, forged[of], store)
        for n in (2, 5, 8):
            batch = nb.map(rows.agent, range(n), **given)
            assert await asyncio.wait_for(batch, 30) is batch
            assert [batch[key].output for key in range(n)] == [f"did row {key}" for key in range(n)]
            assert list(batch.to_frame()["output"]) == [f"did row {key}" for key in range(n)]
            assert (len(batch.questions), len(batch), batch.cost) == (0, n, float(n))
        if not is_sent:
            assert rows.asked == Counter(f"row {n}" for n in range(8))
        again = await nb.open_batch("march", agent=rows.agent)
        assert ([row.key for row in again.rows], again.cost) == ([*map(str, range(8))], 8.0)


@pytest.mark.parametrize("with_batch", [True, False], ids=["whole", "rows"])
async def test_c497_a_batch_continues_from_runs_that_were_imported_before_it_starts(
    with_batch, tmp_path
):
    """Their outputs are kept, and they are not asked again; a later import changes nothing."""
    exported = await documents_of(nb.MemoryStore())
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        for run_id in ["march:0", "march:1", "march:4", *(["march"] if with_batch else [])]:
            nb.import_run(exported[run_id], store=store)
        rows = Rows(store=store)
        rows.agent.tool(approval=True, name="look")(lambda: "nothing")
        opened = await nb.open_batch("march", agent=rows.agent, attended=True, show=False)
        assert [(row.key, row.output) for row in opened.rows] == [
            ("0", "other"),
            ("1", "other"),
            ("4", None),
        ]
        for _ in range(2):
            given: Any = {"prompt": "row {}", "id": "march", "attended": True, "show": False}
            batch = await nb.map(rows.agent, range(5), **given)
            outputs = ["other", "other", "did row 2", "did row 3"]
            assert list(batch.to_frame()["output"])[:4] == outputs
            assert BatchView(batch)._output(work_of(batch).rows["1"]) == "other"
            import_as("march:@2:0", exported["march:2"], store)
        assert len(batch.questions) == 1
        await batch.questions.approve()
        await until(lambda: batch[4].status == "completed")
        assert (batch[4].output, rows.asked["row 0"]) == ("paid", 0)


async def test_c455_rows_that_ask_use_no_task_and_the_others_continue():
    """A waiting row has no handle or task. ``await`` returns if a person is present, and otherwise names the rows."""
    rows = paying()
    batch = nb.map(rows.agent, range(300), prompt="pay {}", id="asking", attended=True, show=False)
    await batch
    assert (batch.status, batch.counts["interrupted"]) == ("waiting", 100)
    gc.collect()
    assert not [one for one in all_sessions() if one.run_id.startswith("asking:")]
    assert len(asyncio.all_tasks()) < 10
    await work_of(batch).continue_answered()  # nothing was answered
    assert batch.counts["interrupted"] == 100
    alone = nb.map(rows.agent, range(7), prompt="pay {}", id="alone", attended=False)
    with pytest.raises(nb.HumanInputRequired, match=r"3 rows .* \('0', '3', '6'\)") as caught:
        await alone
    assert "interrupt" in str(caught.value)
    batch.stop()
    alone.stop()
    prepared = await nb.map(
        rows.agent, range(7), prompt="pay {}", id="prepared", answers={"pay": True}, attended=False
    )
    assert prepared.counts["completed"] == 7


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_c456_many_questions_are_answered_by_a_rule_with_its_preview(kind, tmp_path):
    """Each decision records the rule's text; questions after the preview stay open unless the rule is standing."""
    store = nb.MemoryStore() if kind == "memory" else nb.SQLiteStore(tmp_path / "runs.db")
    rows = paying(store=store)

    batch = nb.map(rows.agent, range(90), prompt="pay {}", id="march", attended=True, show=False)
    await batch
    small = batch.questions.where(tool="pay", amount=nb.below(60))
    assert "tool='pay', amount=below(60) · 20 of 30 questions" in repr(small)
    late = nb.map(rows.agent, [3], prompt="pay {}", id="march.late", attended=True, show=False)
    await late
    got = await small.approve()
    assert (got.count, got.later) == (20, 0)
    await batch
    assert rows.bodies == dict.fromkeys(range(0, 60, 3), 1)
    assert {one.by for one in nb.decisions(store=store)} == {"rule: tool='pay', amount=below(60)"}
    assert batch.counts["completed"] == 80

    left = batch.questions
    one = next(iter(left.where(amount=63)))
    alike = left.like(one)
    assert "why='duplicate'" in repr(alike)
    assert "amount" not in repr(alike)
    assert (await alike.reject("twice")).count == 5
    await batch
    assert batch.counts["completed"] == 85
    table = left.to_frame()
    assert sorted(each["amount"] for each in table["input"]) == [60, 66, 72, 78, 84]
    with pytest.raises(nb.errors.InvalidAnswer):
        await left.answer("maybe")
    assert len(left) == 5
    batch.stop()
    late.stop()


@pytest.mark.parametrize("looks_at", ["the part", "the whole"])
async def test_c456_questions_after_the_preview_are_left_open_unless_the_rule_stays(looks_at):
    """The preview is the last look, at the answered part of the questions or at all questions."""
    rows, more = paying(), asyncio.Event()

    async def slowly(messages: Any) -> Any:
        if "99" in prompt_of(messages) and messages[-1]["role"] != "tool":
            await more.wait()
        return await Rows._step(rows, messages)

    rows.agent.model = nb.ScriptedModel(slowly)
    batch = nb.map(rows.agent, [3, 6, 99], prompt="pay {}", id="march", attended=True, show=False)
    await until(lambda: batch.counts["interrupted"] == 2)
    seen = batch.questions.where(tool="pay")
    assert len(seen if looks_at == "the part" else batch.questions) == 2
    more.set()
    await until(lambda: batch.counts["interrupted"] == 3)
    if looks_at == "the whole":
        seen = batch.questions.where(tool="pay")
    got = await seen.approve()
    assert (got.count, got.later) == (2, 1)
    assert "1 newer question not answered" in repr(got)
    await batch
    again = await seen.approve()
    assert (again.count, again.later) == (0, 1)
    assert rows.bodies == {3: 1, 6: 1}
    standing = await seen.approve(standing=True)
    assert (await batch).counts["completed"] == 3
    assert len(batch.questions) == 0
    next_ = nb.map(
        rows.agent, [3, 6, 99, 12], prompt="pay {}", id="march", attended=True, show=False
    )
    await until(lambda: next_.counts["completed"] == 4)
    assert rows.bodies == {3: 1, 6: 1, 99: 1, 12: 1}
    standing.end()


async def test_c456_three_hundred_questions_are_each_answered_once(tmp_path):
    """The time is only printed; the test checks that each question is answered once."""
    rows = paying(store=nb.SQLiteStore(tmp_path / "runs.db"))
    batch = nb.map(
        rows.agent,
        range(900),
        prompt="pay {}",
        id="march",
        attended=True,
        show=False,
        concurrency=50,
    )
    await batch
    begun = time.monotonic()
    got = await batch.questions.approve()
    print(f"{got.count} answered in {time.monotonic() - begun:.2f} s")
    await batch
    assert set(rows.bodies.values()) == {1}
    assert len(rows.bodies) == 300


async def test_c457_a_pause_starts_no_more_rows_and_a_stopped_batch_can_continue():
    """Stopped rows start again only by ``retry()``; the same call starts the remaining rows."""
    rows = Rows()
    rows.takes = 0.01
    batch = nb.map(rows.agent, range(200), prompt="row {}", id="march", concurrency=4)
    async for _ in batch:
        batch.pause()
        break
    await asyncio.sleep(0.05)
    n = batch.counts["completed"]
    assert (batch.status, n < 20) == ("paused", True)
    await asyncio.sleep(0.05)
    assert batch.counts["completed"] == n
    batch.resume()
    await until(lambda: batch.counts["completed"] >= n + 10)
    rows.takes = 0.2
    await asyncio.sleep(0.05)
    batch.stop()
    with pytest.raises(nb.errors.Cancelled):
        await batch
    assert (batch.status, batch.counts["running"]) == ("cancelled", 0)
    stopped = batch.counts["cancelled"]
    assert 0 < stopped <= 4
    rows.takes = 0.001
    batch = nb.map(rows.agent, range(200), prompt="row {}", id="march")
    await batch
    assert batch.counts["completed"] == 200 - stopped
    assert batch.retry() == stopped
    await batch
    assert batch.counts["completed"] == 200


async def test_c457_the_same_cell_run_again_continues_the_same_batch():
    """A running batch gets the new rows, and no row runs twice."""
    rows = Rows()
    first = nb.map(rows.agent, range(50), prompt="row {}", id="march", concurrency=2)
    await asyncio.sleep(0.01)
    second = nb.map(rows.agent, range(80), prompt="row {}", id="march", concurrency=8)
    assert second is first
    await second
    assert second.counts["completed"] == 80
    assert set(rows.asked.values()) == {1}


def test_c458_a_script_waits_for_its_batch():
    """``wait`` needs no loop; on a loop the error says to use ``await``."""
    rows = Rows()
    batch = nb.map(rows.agent, range(20), prompt="row {}", id="march").wait()
    assert batch.counts["completed"] == 20

    async def here() -> None:
        with pytest.raises(nb.errors.UsageError, match="Use `await batch`"):
            nb.map(rows.agent, range(3), prompt="row {}", id="there").wait()

    asyncio.run(here())


async def test_c459_memory_per_row_is_bounded(tmp_path):
    """Outputs stay in the store until they are read."""
    rows = Rows(lambda _: "x" * 20_000, store=nb.SQLiteStore(tmp_path / "runs.db"))
    await nb.map(rows.agent, range(10), prompt="row {}", id="warm")
    gc.collect()
    tracemalloc.start()
    batch = await nb.map(rows.agent, range(400), prompt="row {}", id="march")
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept / 400 < 5_000
    assert len(batch[399].output) == 20_000


async def test_c450_a_row_can_ask_with_files_and_starts_again_with_them():
    """A prompt function returns what ``agent.run`` accepts."""
    seen: list[Any] = []

    async def look(messages: Any) -> str:
        seen.append([part["type"] for part in messages[-1]["content"]])
        await asyncio.sleep(0.02)
        return "seen"

    agent = nb.Agent(nb.ScriptedModel(look), name="looks", store=nb.MemoryStore())

    def begin() -> Any:
        def ask(row: Any) -> Any:
            return ["What is this?", nb.File(f"a,b\n{row},2\n".encode(), "text/csv")]

        return nb.map(agent, [1, 2, 3], prompt=ask, id="files", concurrency=1)

    batch = begin()
    await until(lambda: len(seen) == 2)
    batch.stop()
    with pytest.raises(nb.errors.Cancelled):
        await batch
    await begin()
    assert (batch.counts["completed"], batch.counts["cancelled"]) == (1, 1)
    batch = await begin()
    assert batch.retry() == 1
    await batch
    assert batch.counts["completed"] == 3
    assert seen == [["text", "file"]] * 4


async def test_c455_a_background_batch_is_answered_from_another_loop():
    """The rows run on their own loop, so a blocked caller's loop does not stop them."""
    rows = paying()
    batch = nb.map(
        rows.agent,
        range(30),
        prompt="pay {}",
        id="behind",
        attended=True,
        show=False,
        background=True,
    )
    for _ in range(3000):
        if batch.counts["interrupted"] == 10:
            break
        time.sleep(0.01)  # noqa: ASYNC251 - this loop stands still
    await batch
    assert (await batch.questions.approve()).count == 10
    assert (await batch).counts["completed"] == 30
    assert set(rows.bodies.values()) == {1}


async def test_c455_a_body_that_asks_in_its_middle_uses_no_task_either():
    """The body ends at its question, and after the answer continues from its last step."""
    steps: Counter[str] = Counter()
    agent = nb.Agent(
        nb.ScriptedModel(lambda m: "done" if m[-1]["role"] == "tool" else call("book", n=1)),
        name="books",
        store=nb.MemoryStore(),
    )

    @agent.tool
    async def book(n: int, ctx: nb.ToolContext) -> str:
        held = await ctx.step("hold", lambda: steps.update(["hold"]) or "held")
        day = await ctx.ask(nb.Ask("Which day?"))
        steps["book"] += 1
        return f"{held} {day}"

    batch = nb.map(agent, range(20), prompt="row {}", id="march", attended=True, show=False)
    await batch
    assert batch.counts["interrupted"] == 20
    await asyncio.sleep(0.05)
    assert len(asyncio.all_tasks()) < 6
    assert (await batch.questions.answer("Monday")).count == 20
    await batch
    assert batch.counts["completed"] == 20
    assert steps == {"hold": 20, "book": 20}


async def test_c453_an_error_of_a_row_function_ends_the_batch_and_names_the_row():
    """Running rows finish; the error is the function's own."""
    rows = Rows()
    batch = nb.map(
        rows.agent, range(20), prompt=lambda n: f"row {10 // (7 - n)}", id="march", concurrency=2
    )
    with pytest.raises(ZeroDivisionError) as caught:
        await batch
    assert caught.value.__notes__ == ["It was raised for the prompt of row 7 ('7')."]
    assert (batch.counts["completed"], batch.counts["running"]) == (7, 0)


async def test_c453_an_error_of_a_row_function_is_raised_when_a_batch_is_continued():
    """Nothing starts, and the stored batch does not change."""
    rows = Rows()
    await nb.map(rows.agent, range(5), prompt=lambda n: f"row {n}", id="march")

    def prompt(n: int) -> str:
        if n == 7:
            raise LookupError("no text for 7")
        return f"row {n}"

    batch = nb.map(rows.agent, range(9), prompt=prompt, id="march")
    with pytest.raises(LookupError, match="no text for 7"):
        await batch
    assert repr(batch) == "<Batch march: LookupError: no text for 7>"
    assert sum(rows.asked.values()) == 5


async def test_c461_who_follows_a_batch_reads_it_again_after_its_store_has_failed(
    tmp_path, monkeypatch, caplog
):
    """A failed read is logged, and the wait for the batch continues."""
    rows = Rows(store=nb.SQLiteStore(tmp_path / "runs.db"))
    rows.takes = 0.5
    first = nb.map(rows.agent, range(9), prompt=lambda n: f"row {n}", id="march", concurrency=3)
    await until(lambda: first.counts["running"] > 0)
    monkeypatch.setattr("nbagent.batch.batch._batches", weakref.WeakSet())  # as in another process
    monkeypatch.setattr("nbagent.batch.batch.CHECK_SECONDS", 0.05)
    second = await nb.open_batch("march", agent=rows.agent, store=rows.agent.store)
    failures = iter(range(2))

    def failing(*given: Any) -> Any:
        if next(failures, None) is not None:
            raise nb.errors.StoreError("the disk is away")
        return read_batch(*given)

    monkeypatch.setattr("nbagent.batch.batch.read_batch", failing)
    assert (await asyncio.wait_for(second, 30)).counts["completed"] == 9
    assert caplog.text.count("batch 'march' could not be read; trying again: the disk is away") == 2
    assert set(rows.asked.values()) == {1}
    await first


async def test_c456_any_inbox_answers_the_questions_that_it_chose(tmp_path):
    """Runs outside a batch continue, each once; an inbox without a preview answers all open questions."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    rows = paying(store=store)
    runs = [rows.agent.run(f"pay {n}", attended=True, show=False) for n in range(0, 30, 3)]
    for run in runs:
        await run.settled()
    inbox = nb.inbox(store)
    got = await inbox.where(tool="pay", amount=nb.below(12)).approve()
    assert (got.count, got.refused) == (4, [])
    assert [(await run).text for run in runs[:4]] == ["paid"] * 4
    assert (await inbox.reject("no")).count == 6
    for run in runs:
        await run
    assert rows.bodies == dict.fromkeys((0, 3, 6, 9), 1)
    for limit in ("100", None, True, float("nan")):
        with pytest.raises(nb.errors.UsageError, match="takes a number"):
            nb.below(limit)


async def test_c492_an_answer_to_one_question_continues_its_row_without_waiting_for_a_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work, "POLL", 3600.0)
    rows = paying()
    batch = nb.map(rows.agent, [3, 6], prompt="row {}", id="b", attended=True, show=False)
    await batch
    for one in list(batch.questions):
        await one.answer(True)
    await until(lambda: batch.counts["completed"] == 2)
    assert rows.bodies == {3: 1, 6: 1}


async def answer_in_store(store: Any) -> None:
    """Store an answer to each question, as another process does."""

    async def continued_elsewhere() -> None:
        pass

    for one in InboxEntry(store, runs="b:", on_answered=continued_elsewhere).look():
        await one.answer(True)


async def test_c492_after_a_check_that_took_long_an_answer_is_noticed_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example after a check during which other code blocked the loop."""
    monkeypatch.setattr(work, "POLL", 0.01)
    monkeypatch.setattr(work, "POLL_FACTOR", 1e6)
    monkeypatch.setattr(work, "LONGEST_POLL", 0.05)
    rows = paying()
    batch = nb.map(rows.agent, [3], prompt="row {}", id="b", attended=True, show=False)
    await batch
    await asyncio.sleep(0.1)
    await answer_in_store(rows.agent.store)
    await until(lambda: batch.counts["completed"] == 1)


async def test_c492_a_row_that_was_answered_while_its_question_was_read_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The row continues even if a check of other rows has already seen the store's newest state."""
    monkeypatch.setattr(work, "POLL", 0.01)
    monkeypatch.setattr(nb.MemoryStore, "stamp", lambda _: "the newest")
    rows = paying()
    batch = nb.map(rows.agent, [3], prompt="row {}", id="b", attended=True, show=False)
    await batch
    state = work_of(batch)
    await until(lambda: state._stamp_seen == "the newest")
    await answer_in_store(rows.agent.store)
    state._change_row(state.rows["0"], lambda: None)  # has the state from before the answer
    await until(lambda: batch.counts["completed"] == 1)


async def test_c456_questions_are_indexed_and_a_filter_that_looks_like_a_mistake_is_reported():
    rows = paying()
    batch = await nb.map(rows.agent, [3, 6], prompt="row {}", id="b", attended=True, show=False)
    first = batch.questions[0]
    assert repr(first).startswith(
        "<question of pay in run 'b:0', asks for approval, input {'amount'"
    )
    assert [one.key for one in batch.questions] == [batch.questions[n].key for n in (0, 1)]
    for mistake, says in (
        ({"tool": "payy"}, r"No question of a tool 'payy' is open\. Did you mean 'pay'\?"),
        ({"amonut": 3}, r"No open question has an input 'amonut'\. Did you mean 'amount'\?"),
    ):
        with pytest.warns(UserWarning, match=says):
            assert batch.questions.where(**mistake).count == 0
    with pytest.raises(nb.errors.UsageError, match=r"takes functions of a question, got 'pay'"):
        batch.questions.where("pay")
    assert batch.questions.where(tool="another").count == 0
    assert repr(await first.answer(True)).startswith("Resolved(Restart(), by='code', id=")


@pytest.mark.parametrize("library", [pd, pl])
async def test_c450_no_column_of_the_table_is_overwritten(library):
    """The output's fields and the results get free names, however often a table is mapped."""

    class Ticket(BaseModel):
        status: str

    rows = Rows(lambda text: f'{{"status": "{text[-1]}"}}', output_type=Ticket)
    frame = library.DataFrame({"text": ["a", "b"]})
    for n in range(3):
        batch = await nb.map(rows.agent, frame, prompt="{text}", id=f"b{n}")
        frame = batch.to_frame()
        assert len(frame.columns) == 1 + 5 * (n + 1)
    assert list(frame["status"]) == list(frame["text"]) == ["a", "b"]
    runs = [list(frame[name]) for name in ("run", "run_of_run", "run_of_run_of_run")]
    assert runs == [[f"b{n}:0", f"b{n}:1"] for n in range(3)]


async def test_c450_columns_that_are_inserted_later_move_nothing():
    """Prompts and keys come from the columns that were there at the call."""
    rows = Rows()
    table = pd.DataFrame({"order": ["A", "B"], "text": ["x", "y"]})
    batch = nb.map(rows.agent, table, prompt="{text}", key="order", id="march")
    table.insert(0, "who", ["w1", "w2"])
    table.loc[2] = ["w3", "C", "z"]
    await batch
    assert [(row.key, row.output) for row in batch.rows] == [("A", "did x"), ("B", "did y")]
    assert list(batch.to_frame()["status"]) == ["completed"] * 2


async def test_c452_a_waiting_row_does_not_run_with_its_old_prompt_when_its_prompt_changes():
    """``changed="again"`` names it: a person must first answer or reject its question."""
    rows = paying()
    table = [{"k": "A", "n": 3}]
    options: Any = {"prompt": "row {n}", "id": "march", "key": "k", "attended": True, "show": False}
    await nb.map(rows.agent, table, **options)
    table[0]["n"] = 6
    again = nb.map(rows.agent, table, changed="again", **options)
    with pytest.raises(nb.errors.UsageError, match=r"still wait for an answer.*'A'"):
        await again
    assert not rows.bodies


@pytest.mark.parametrize("changed", [None, "keep", "again"])
async def test_c453_a_retry_of_a_generators_rows_goes_on_where_the_generator_was(changed):
    """Positions are not counted again, and stopped rows start again from their stored prompts."""
    failed: list[str] = []

    def reply(text: str) -> Any:
        if text == "r1" and not failed:
            failed.append(text)
            raise ValueError("boom")
        return f"did {text}"

    rows = Rows(reply)
    rows.takes = 0.01
    given = (f"r{n}" for n in range(10))
    batch = nb.map(rows.agent, given, prompt="{}", id="march", concurrency=2, changed=changed)
    async for row in batch:
        if row.status == "failed":
            batch.retry()
            break
    await batch
    assert {row.key: row.output for row in batch.rows} == {f"{n}": f"did r{n}" for n in range(10)}
    rows.takes = 60
    stopped = nb.map(rows.agent, iter("ab"), prompt="{}", key=str, id="may", changed=changed)
    await until(lambda: stopped.counts["running"] == 2)
    stopped.stop()
    with pytest.raises(nb.errors.RunError):
        await stopped
    rows.takes = 0.001
    assert stopped.retry() == 2
    await stopped
    assert stopped.counts["completed"] == 2


async def test_c454_the_cost_of_a_rows_earlier_runs_counts(tmp_path):
    """With ``changed="again"``, also after the batch was opened again."""
    for spent in (1, 2, 3):
        with nb.SQLiteStore(tmp_path / "runs.db") as store:
            rows = Rows(cost=1.0, store=store)
            options: Any = {"prompt": f"v{spent} {{}}", "id": "march", "changed": "again"}
            batch = nb.map(rows.agent, ["a"], **options)
            await batch
            assert batch.usage.cost == spent
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        rows = Rows(cost=1.0, store=store)
        batch = nb.map(
            rows.agent,
            ["a"],
            prompt="v4 {}",
            id="march",
            changed="again",
            budget=nb.Budget(cost=3),
        )
        with pytest.raises(nb.errors.BudgetExceeded):
            await batch
        assert not rows.asked


@pytest.mark.parametrize("dtype", ["Int64", "string"])
async def test_c451_a_missing_key_of_a_nullable_column_is_named(dtype):
    """Like a missing key of any other column."""
    table = pd.DataFrame({"k": pd.Series([1, None], dtype="Int64").astype(dtype), "n": [1, 2]})
    with pytest.raises(nb.errors.UsageError, match="Row 1 has no key: <NA>"):
        await nb.map(Rows().agent, table, prompt="{n}", id="gaps", key="k")


async def test_c453_a_retry_does_not_skip_a_row_of_a_generator_that_could_not_be_read():
    """The batch fails again, with the same error, until it gets a generator that can be read."""
    failed: list[str] = []

    def reply(text: str) -> Any:
        if not failed:
            failed.append(text)
            raise ValueError("boom")
        return f"did {text}"

    rows = Rows(reply)
    given = iter(["a", None, "b"])
    batch = nb.map(rows.agent, given, prompt="{}", id="march", concurrency=1)
    for completed in (0, 1):
        with pytest.raises(nb.errors.UsageError, match=r"Row 1 .* is empty"):
            await batch
        assert batch.counts["completed"] == completed
        batch.retry()
    batch = nb.map(rows.agent, iter(["a", "x", "b"]), prompt="{}", id="march")
    await batch
    assert [row.output for row in batch.rows] == ["did a", "did x", "did b"]


async def test_a_deleted_row_runs_again_while_its_batch_waits():
    """Other rows still wait in this process; ended rows do not run again."""
    rows = paying()

    def begin() -> nb.Batch:
        given: Any = {"prompt": "pay {}", "id": "march", "attended": True, "show": False}
        return nb.map(rows.agent, [1, 2, 3], **given)

    await begin()
    for key in "02":  # one ended, one waits
        nb.delete_run(f"march:{key}", store=rows.agent.store)
    batch = await begin()
    assert (rows.asked["pay 1"], rows.asked["pay 2"], rows.asked["pay 3"]) == (2, 1, 2)
    assert (batch["0"].output, batch.counts["completed"]) == ("nothing to pay", 2)
    nb.delete_run("march:2", store=rows.agent.store)
    await until(lambda: batch.status == "completed")  # no row is left that waits
    assert (batch.counts["completed"], batch.counts["left"]) == (2, 1)


async def test_a_batch_that_is_open_here_continues_with_the_options_of_open_batch():
    """An agent of another name is refused; an option that is left out stays."""
    rows, other = paying(), paying()
    options: Any = {"attended": True, "show": False}
    batch = await nb.map(
        rows.agent, range(9), prompt="pay {}", id="march", concurrency=2, **options
    )
    other.agent.name = "other"
    with pytest.raises(nb.errors.UsageError, match="belongs to the agent 'rows', not to 'other'"):
        await nb.open_batch("march", agent=other.agent, store=rows.agent.store, **options)
    assert await nb.open_batch("march", store=rows.agent.store, **options) is batch
    assert batch.counts["interrupted"] == 3
    again = await nb.open_batch(
        "march", store=rows.agent.store, answers={"pay": True}, attended=False, show=False
    )
    assert again is batch
    assert (await batch).counts["completed"] == 9
    assert rows.bodies == {0: 1, 3: 1, 6: 1}
    assert work_of(batch).options.concurrency == 2


@pytest.mark.parametrize("opens", [False, True])
def test_a_script_may_continue_its_batch_in_another_asyncio_run(opens: bool) -> None:
    """The first event loop is closed while rows wait; the error says to pass answers."""
    rows = paying()
    options: Any = {"attended": False, "show": False}

    async def begin(**more: Any) -> nb.Batch:
        if opens and more:
            batch = await nb.open_batch("march", store=rows.agent.store, **options, **more)
        else:
            batch = nb.map(rows.agent, range(4), prompt="pay {}", id="march", **options, **more)
        return await batch

    for _ in range(2):
        with pytest.raises(nb.HumanInputRequired, match=r"2 rows .*\('0', '3'\)"):
            asyncio.run(begin())
    assert asyncio.run(begin(answers={"pay": True})).counts["completed"] == 4
    assert rows.bodies == {0: 1, 3: 1}


async def test_a_batch_that_is_opened_without_its_rows_keeps_its_last_budget():
    """It ends at its limit as before; a repeated call raises the limit."""
    rows = paying(cost=1.0)
    given: Any = {"prompt": "pay {}", "id": "march", "concurrency": 1, "attended": False}
    answers = {"pay": True}
    for cost in (1, 2):  # each row costs a dollar, then it asks
        with pytest.raises(nb.errors.BudgetExceeded, match=rf"\${cost}\.00"):
            await nb.map(rows.agent, [0, 3, 6], budget=nb.Budget(cost=cost), **given)
    store: Any = rows.agent.store
    batch = await nb.open_batch("march", store=store, answers=answers, attended=False, show=False)
    with pytest.raises(nb.errors.BudgetExceeded, match=r"\$2\.00"):
        await batch
    assert batch.usage.cost == 2
    await nb.map(rows.agent, [0, 3, 6], answers=answers, **given)
    batch = await nb.open_batch("march", store=store, show=False)
    assert (batch.counts["completed"], work_of(batch).options.budget) == (3, None)


def test_answers_that_are_given_while_a_batch_starts_continue_its_rows():
    """As in the second event loop of a script: answer, then await."""
    rows = paying()

    async def begin(*, answers: bool) -> nb.Batch:
        batch = nb.map(
            rows.agent, range(4), prompt="pay {}", id="march", attended=False, show=False
        )
        if answers:
            await batch.questions.approve()
        return await batch

    with pytest.raises(nb.HumanInputRequired):
        asyncio.run(begin(answers=False))
    assert asyncio.run(begin(answers=True)).counts["completed"] == 4


async def test_who_follows_a_batch_that_waits_elsewhere_waits_no_longer(monkeypatch):
    """The error names the way; if a person is there, ``await`` returns."""
    rows = paying()

    def begin(*, attended: bool) -> nb.Batch:
        given: Any = {"prompt": "pay {}", "id": "march", "attended": attended, "show": False}
        return nb.map(rows.agent, range(4), **given)

    first = await begin(attended=True)
    monkeypatch.setattr("nbagent.batch.batch._running_here", lambda *_: None)
    with pytest.raises(nb.HumanInputRequired, match=r"2 rows .* on which another process works"):
        await begin(attended=False)
    second = await begin(attended=True)
    assert (second.status, second.counts["interrupted"]) == ("waiting", 2)
    await first.questions.approve()
    assert (await second).counts["completed"] == 4


async def test_the_same_call_continues_a_batch_whose_store_has_failed(tmp_path):
    """The call waits until the store has the end of the batch's own run."""
    broken: list[bool] = []

    class Store(nb.SQLiteStore):
        def append(self, *given: Any) -> None:
            if broken:
                raise nb.errors.StoreError("the disk is full")
            super().append(*given)

    rows = Rows(store=Store(tmp_path / "runs.db"))
    rows.takes = 0.05

    def begin() -> nb.Batch:
        return nb.map(rows.agent, range(6), prompt="row {}", id="march", concurrency=2, retry=1)

    batch = begin()
    await until(lambda: len(rows.asked) == 4)
    broken.append(True)
    with pytest.raises(nb.errors.StoreError, match="the disk is full"):
        await batch
    broken.clear()
    assert (await begin()).counts["completed"] == 6


async def test_rows_read_before_the_work_began_replace_nothing_that_it_found(monkeypatch):
    """A look at the store that takes longer than all the work returns rows that are older than the counts."""

    def read_early(store: Any, batch_id: str) -> Any:
        found = read_batch(store, batch_id)
        for row in found.rows.values():
            row.status = "running"
        return found

    agent = nb.Agent(nb.ScriptedModel(lambda _messages: "done"))
    batch = await nb.map(agent, range(2), prompt="row {}", id="b", store=nb.MemoryStore())
    monkeypatch.setattr("nbagent.batch.batch.read_batch", read_early)
    await batch._read_if_changed(None)
    assert batch.counts["completed"] == 2
