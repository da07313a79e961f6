"""Calls that a provider runs itself: rows with their sources, and citations below the text."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.model import Citation, Discarded, Finished, HostedCall, TextDelta
from nbagent.notebook.render import plain, static
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import CallItem, TextItem

TOWERS = {"url": "https://example.org/towers", "title": "Towers <b>of</b> the world"}
EVIL = {"url": "javascript:alert(1)", "title": "</a><script>alert(1)</script>"}
SEARCH = HostedCall("1", "web_search", {"query": "tallest tower"})
DONE = SEARCH._replace(status="done", sources=[TOWERS, EVIL])
CODE = HostedCall("2", "code_interpreter", {"code": "1/0"}, "failed", "ZeroDivisionError")
STEP = [SEARCH, DONE, CODE, TextDelta("Tall."), Citation("Towers", TOWERS["url"]), Finished()]


async def drawn(step: list[Any], *, live: bool) -> Any:
    """The view of a run, applied live or from the journal."""
    agent = nb.Agent(nb.ScriptedModel([step]))
    view = SingleRunView("r")
    if live:
        run = agent.run("How tall?", attended=False)
        run.subscribe(view.apply)
        await run
    else:
        run = agent.run("How tall?", attended=False)
        await run
        for event in run.journal:
            view.apply(event)
    return view.snapshot()


@pytest.mark.parametrize("live", [True, False])
async def test_a_hosted_call_is_a_row_with_its_query_and_its_sources(live: bool) -> None:
    """The row is the same live and from the journal: query, sources and failure."""
    view = await drawn(STEP, live=live)
    search, code = (item for item in view.items if isinstance(item, CallItem))
    assert (search.name, search.state, search.brief) == (
        "web_search",
        "done",
        'query="tallest tower"',
    )
    assert (code.state, code.result) == ("failed", "ZeroDivisionError")
    assert '<details class="nba-call" data-state="done">' in static.render(view)  # folded
    text, sources = (item for item in view.items if isinstance(item, TextItem))
    assert [item.key for item in view.items].index(search.key) < [
        item.key for item in view.items
    ].index(text.key)
    assert f'href="{TOWERS["url"]}"' in sources.blocks[0]


@pytest.mark.parametrize("live", [True, False])
async def test_a_source_is_only_a_link_to_the_web(live: bool) -> None:
    """Titles are escaped; only web addresses become links, and the card shows their host."""
    view = await drawn(STEP, live=live)
    markup = static.render(view)
    assert "<script" not in markup
    assert "javascript:" not in markup
    assert "Towers &lt;b&gt;of" in markup
    assert set(re.findall(r'href="([^"]*)"', markup)) == {TOWERS["url"]}
    assert "example.org" in plain.render(view)


async def test_a_call_that_never_ended_is_not_drawn_as_running() -> None:
    """The response has ended, so its hosted calls have ended too."""
    view = await drawn([SEARCH, TextDelta("Cut."), Finished("length")], live=False)
    row = next(item for item in view.items if isinstance(item, CallItem))
    assert row.state == "cancelled"


async def test_a_discarded_attempt_leaves_no_row() -> None:
    """A failed attempt's searches and sources are removed with it."""
    step = [SEARCH, Citation("x", "https://x.org"), Discarded("torn"), TextDelta("Ok."), Finished()]
    for live in (True, False):
        view = await drawn(step, live=live)
        assert not any(isinstance(item, CallItem) for item in view.items)
        assert "x.org" not in static.render(view)


async def test_without_styles_no_two_words_of_a_card_run_together() -> None:
    """A site may strip styles and keep elements: header, rows and footer still read as words."""
    markup = static.render(await drawn(STEP, live=False), style=False)
    text = unescape(re.sub(r"<[^>]*>", "", markup))
    assert text.startswith("agent How tall? · done ")
    assert ' web_search query="tallest tower" ' in text
    assert 'code="1/0" · failed ' in text
    assert text.rstrip().endswith("scripted")
