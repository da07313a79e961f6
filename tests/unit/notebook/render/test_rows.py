"""The rows of a static card: grouped calls, measured values and drawn arguments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.notebook.cards.display import static_bundle
from nbagent.notebook.render import amounts, arguments, facts, rich, static
from nbagent.notebook.wire import (
    CallItem,
    CardHead,
    MessageItem,
    RecordItem,
    Rich,
    Span,
    TextItem,
    View,
)

HEAD = CardHead(
    run="r", agent="a", prompt="p", started_at=0, status="completed", status_text="done",
    turns=2, tokens=4_182, cost=0.0213, known_cost=0.0213,
    spans=[Span(lane="wait", start=5, end=10), Span(lane="model", start=0, end=5)],
)  # fmt: skip
RECORD = RecordItem(key="a:i", title="pay", decision="approved", after=12.3)


def row(number: int, *, turn: int = 0, **changed: Any) -> CallItem:
    known: dict[str, Any] = {"name": "look", "state": "done", "brief": f"n={number}"}
    return CallItem(key=f"{turn}.c{number}", **{**known, **changed})


@pytest.mark.parametrize(
    ("items", "sizes"),
    [
        ([row(0), row(1)], [1, 1]),
        ([row(0), row(1), row(2)], [3]),
        ([row(0, turn=0), row(0, turn=1), row(0, turn=2)], [3]),
        ([row(n) for n in range(3)] + [row(3, name="pay")] + [row(n) for n in (4, 5)], [3, 1, 1, 1]),
        ([row(0), row(1), row(2, state="failed"), row(3), row(4)], [1] * 5),
        ([row(0), row(1), row(2, decisions=[RECORD]), row(3)], [1] * 4),
        ([row(0), row(1), row(2, outputs=[Rich(kind="html", data="<table>")])], [1] * 3),
        ([row(0), row(1), row(2, outputs=[Rich(kind="text", data="x")])], [3]),
        ([row(0), row(1), row(2), row(3, state="running")], [1] * 4),
        ([*(row(n) for n in range(3)), row(0, turn=1, state="running")], [3, 1]),
        ([row(n, state="running") for n in range(40)], [1] * 40),
        ([row(n, state="done" if n < 9 else "running") for n in range(41)], [41]),
        ([row(0), row(1), TextItem(key="t"), row(2)], [1] * 4),
        ([row(0), row(1), row(2, path="clerk")], [1] * 3),
    ],
)  # fmt: skip
def test_several_quiet_calls_of_one_tool_are_one_row(items: list[Any], sizes: list[int]) -> None:
    """From three on; a call that waits, runs, failed, was decided or shows a table is its own row."""
    found = static.stretches(items)
    assert [len(part) for part in found] == sizes
    assert [item for part in found for item in part] == items


def test_the_rest_of_very_many_quiet_calls_is_one_text() -> None:
    """A page is slow with very many rows, so closed rows beyond a limit are one text."""
    count, files = static.ROWS + 50, [Rich(kind="text", data="a file")]
    items = [
        row(n, result=f"row <{n}>.", elapsed=0.2, outputs=files * (n == static.ROWS + 7))
        for n in range(count)
    ]
    opened = [items[static.ROWS + 3].key]
    html = static.render(View(head=HEAD, items=items), style=False, measured=True, opened=opened)
    assert html.count("<details") == 1 + static.ROWS + 2
    assert [n for n in range(count) if html.count(f"row &lt;{n}&gt;.") != 1] == []
    assert f"200 ms\nrow &lt;{count - 1}&gt;.</pre></div></details>" in html


LONG_RESULTS = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "long_results.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("result", LONG_RESULTS)
def test_c402_a_long_result_says_how_long_it_is(result: dict[str, Any]) -> None:
    """Results of over ten rows or twenty lines say so and are whole; the live card shares these examples."""
    data = f"{result['begin']}{result['piece'] * result['times']}{result['end']}"
    outputs = [Rich(kind=result["kind"], data=data, alt="a chart")]
    shown = row(0, outputs=outputs)
    html = static.render(View(head=HEAD, items=[shown]), style=False)
    assert [part for part in (result["says"],) if f"<span>{part}</span>" not in html and part] == []
    assert html.count("nba-all") == html.count("nba-long") == bool(result["says"])
    if result["kind"] == "text":
        told = static.render(View(head=HEAD, items=[row(0, result=data)]), style=False)
        assert told.count("nba-all") == bool(result["says"])
        assert data in told
    opened = static.render(View(head=HEAD, items=[shown]), style=False, opened=["0.c0:all0"])
    assert opened.count(' open=""><summary data-less') == bool(result["says"])


@pytest.mark.parametrize(("turns", "earlier"), [(8, 0), (9, 5), (100, 96)])
def test_c403_a_long_chat_is_saved_with_its_earlier_turns_folded(turns: int, earlier: int) -> None:
    """The chat opens at its end; an exported document has all turns open, and a run has no such fold."""
    items: list[Any] = []
    for n in range(turns):
        items += [
            MessageItem(key=f"m{n}", text=f"Question {n}."),
            TextItem(key=f"t{n}", tail=f"Answer {n}."),
        ]
    head = HEAD.model_copy(update={"chat": True})
    html = static.render(View(head=head, items=items), style=False)
    folded, _, seen = html.rpartition("</details>")
    assert [n for n in range(turns) if f"Question {n}." in seen] == list(range(earlier, turns))
    assert [n for n in range(turns) if f"Answer {n}." in folded] == list(range(earlier))
    assert (f"{earlier} earlier turns" in html) == bool(earlier)
    for whole in (
        static.render(View(head=head, items=items), style=False, all_turns=True),
        static.render(View(head=HEAD, items=items), style=False),
    ):
        assert "earlier turns" not in whole


def test_c796_measured_times_and_costs_are_shown_only_where_a_person_saw_them() -> None:
    """Times, tokens, cost, the strip and tracebacks are left out where outputs are compared."""
    pay = row(9, name="pay", elapsed=0.137, decisions=[RECORD], traceback="line 3")
    view = View(head=HEAD, items=[*(row(n, elapsed=0.2) for n in range(3)), pay])
    told = ("137 ms", "600 ms", "after 12 s", "4.18k tokens", "$0.021", "nba-strip", "line 3")
    measured = static.render(view, style=False, measured=True)
    assert [text for text in told if text not in measured] == []
    assert [text for text in told if text in static.render(view, style=False)] == []
    wait = 'data-lane="wait" title="5.0 s" style="--l:96.15%;--r:0.00%"'
    assert wait in measured, "a wait is as wide as a notch"
    of_pay = Span(lane="tool", start=1, end=2.5, key=pay.key)
    named = view.model_copy(update={"head": HEAD.model_copy(update={"spans": [of_pay]})})
    assert 'title="pay 1.5 s"' in static.render(named, style=False, measured=True)
    spans = [("tool", 5, 9), ("tool", 6, 8), ("tool", 12, None), ("model", 0, 15)]
    head = HEAD.model_copy(update={"spans": [Span(lane=a, start=b, end=c) for a, b, c in spans]})
    legend = static.render(View(head=head, items=[]), style=False, measured=True)
    told = re.sub("<[^>]*>", "", legend.partition("nba-legend")[2].partition("</div>")[0])
    assert told.endswith(">model 15 s · tools 7.0 s "), "what ran at once counts once"
    assert "<span>15 s</span>" in legend, "the footer has the time of work"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, ""),
        (1, "1 token"),
        (999, "999 tokens"),
        (1_000, "1k tokens"),
        (26_512, "26.5k tokens"),
        (99_960, "100k tokens"),
        (999_499, "999k tokens"),
        (999_500, "1M tokens"),
        (12_345_678, "12.3M tokens"),
    ],
)
def test_c792_a_number_of_tokens_has_three_digits(number: int, text: str) -> None:
    """All digits are in the tooltip."""
    assert amounts.tokens(number) == text
    head = HEAD.model_copy(update={"tokens": number, "model": "gpt-5", "known_cost": 0.0})
    counts = {count.text: count.about for count in amounts.counted(head).counts}
    assert ("" if number < 1000 else f"{number:,} tokens") == counts.get(text, "")
    assert next(iter(counts)) == "gpt-5"


@pytest.mark.parametrize(
    ("turns", "limit", "status", "text"),
    [
        (3, 20, "running", ""),
        (15, 20, "running", "15 of 20 turns"),
        (3, 4, "interrupted", "3 of 4 turns"),
        (4, 4, "completed", ""),
        (3, 0, "running", ""),
    ],
)
def test_c792_turns_are_shown_only_near_their_limit(
    turns: int, limit: int, status: Any, text: str
) -> None:
    """A run that has ended, and a flow, have none."""
    head = HEAD.model_copy(update={"turns": turns, "max_turns": limit, "status": status})
    assert amounts.near_limit(head) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0002, "1 ms"), (0.137, "137 ms"), (0.9996, "1.0 s"), (9.96, "9 s"), (75, "1 min 15 s")],
)
def test_a_time_below_a_second_is_in_ms(seconds: float, text: str) -> None:
    """As in ``format.js``; a running timer has whole seconds."""
    assert amounts.duration(seconds) == text
    assert amounts.duration(0.4, whole_seconds=True) == "0 s"


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("sql", "SELECT 1 FROM t", '<span class="k">SELECT</span>'),
        ("what", "UPDATE t SET a = 1", '<span class="k">UPDATE</span>'),
        ("code", "def f(): pass", '<span class="k">def</span>'),
        ("note", "two\nlines", "<pre"),
        ("note", "select all that you like from here", ""),
        ("n", {"a": 1}, ""),
        ("deep", {"a": {"b": list(range(99)), "c": "x" * 99}}, "<details><summary>"),
        ("deep", [{"a": "<script>" + "x" * 99}], "&lt;script&gt;"),
    ],
)
def test_arguments_are_drawn_by_their_type(name: str, value: Any, wanted: str) -> None:
    """Code is colored, and nested values open step by step."""
    [fact] = arguments.drawn(facts.facts_of({name: value}), {name: value})
    assert bool(fact.html) == bool(wanted)
    assert wanted in fact.html
    assert "<script" not in fact.html


def test_a_tree_of_any_size_is_bounded_and_says_so() -> None:
    """Of ten thousand values in ten levels, some hundred are drawn and the rest counted."""
    deep: Any = "end"
    for _ in range(10):
        deep = {"next": deep, "rows": list(range(1_000))}
    [fact] = arguments.drawn(facts.facts_of({"deep": deep}), {"deep": deep})
    assert len(fact.html) < 60_000
    assert "more values, not shown" in fact.html


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    """In foreign tables and typed answers, with their headers; dates and words are not aligned."""
    markup = (
        "<table><thead><tr><th></th><th>region</th><th>sum</th></tr></thead><tbody>"
        "<tr><th>0</th><td>North</td><td>1,204.5</td></tr>"
        "<tr><th>1</th><td>South</td><td>-42,908</td></tr></tbody></table>"
    )
    drawn = rich.safe_html(markup)
    assert drawn.count('align="right"') == 3
    assert '<td align="right">-42,908</td>' in drawn
    assert "<td>South</td>" in drawn
    typed = static.nested([{"day": "2026-01-02", "n": 1}, {"day": "2026-01-03", "n": 2.5}])
    assert typed.count('align="right"') == 3


SAVED = [
    ({"external": True}, "not finished", " data-outside"),
    (nb.Choose("Which?", ["a", "b"]), "not answered", ""),
    (nb.Confirm("Delete all?", danger=True), "not answered", " data-danger"),
]


@pytest.mark.parametrize(("asked", "state", "kind"), SAVED)
async def test_c680_a_saved_card_says_of_no_question_that_it_waits(asked, state, kind) -> None:
    """Nobody can answer there: the run, its call and the question have that state; a danger stays red."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("look")]), name="a")

    @agent.tool
    def look(ctx: nb.ToolContext) -> None:
        if isinstance(asked, dict):
            ctx.interrupt("Which?", **asked)
        ctx.interrupt(asked)

    run = await agent.run("hi", attended=True, show=False).settled()
    saved = static_bundle(run)
    assert saved["text/plain"].startswith(f"a · {state}\n")
    assert f">{state}</span>" in saved["text/html"]
    assert f'<div class="nba-form"{kind}' in saved["text/html"]
    assert ("Not answered." in saved["text/html"]) == (state == "not answered")
    drawn = re.sub(r'(?s)<style>.*</style>|data-state="waiting"', "", saved["text/html"])
    assert "aiting" not in saved["text/plain"] + drawn
    await run.cancel()
