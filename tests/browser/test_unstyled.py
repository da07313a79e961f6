"""A saved card without styles, as GitHub shows it, and Jupyter in an untrusted notebook."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser

import nbagent as nb
from nbagent.notebook.cards.display import static_bundle
from tests.browser.notebook_page import keep_picture

call = nb.ScriptedModel.call
ANSWER = "South is **the only** one:\n\n| region | margin |\n|---|--:|\n| South | -20 |"
LINES = """
analyst Which regions lost money? · done
I look at the margin first.
lookup \u00d7 3 · region="North" · region="South" · region="East"
send_mail to="ada", body="Hi⏎ Ada and Bob" · approved with changes · by code
to
ada
body
Hi
Ada
Ada and Bob
sent
boom ValueError: no such table · failed
asks
Which color?: answered blue · by code
South is the only one:
region margin
South -20
scripted
"""


def a_run() -> nb.Run:
    """A run with a fold, a decision, a failure, a question and a table."""
    calls = [call("lookup", region=each) for each in ("North", "South", "East")]
    model = nb.ScriptedModel(
        [
            ["I look at the margin first.", *calls, call("send_mail", to="ada", body="Hi\nAda")],
            [call("boom"), call("asks")],
            ANSWER,
        ]
    )
    agent = nb.Agent(model, name="analyst")

    @agent.tool
    def lookup(region: str) -> str:
        return region

    @agent.tool(approval=True, editable=True)
    def send_mail(to: str, body: str) -> str:
        return "sent"

    @agent.tool
    def boom() -> None:
        raise ValueError("no such table")

    @agent.tool
    async def asks(ctx: nb.ToolContext) -> str:
        return await ctx.ask("Which color?", reply=str)

    answers = {
        "send_mail": nb.Restart({"to": "ada", "body": "Hi\nAda and Bob"}),
        "asks": nb.Respond("blue"),
    }
    run = agent.run("Which regions lost money?", answers=answers, attended=False, show=False)
    run.wait()
    return run


@pytest.mark.parametrize("width", [400, 900])
def test_a_card_is_readable_without_any_style(browser: Browser, width: int) -> None:
    """Nothing runs together: dots separate the parts of a row, lines stay lines, names are strong."""
    with ThreadPoolExecutor(1) as thread:  # Playwright runs a loop in this thread
        html = static_bundle(thread.submit(a_run).result())["text/html"]
    bare = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    bare = re.sub(r"<(\w+)[^>]*>", lambda tag: f"<{tag[1]}>", bare)
    bare = re.sub(r"(<details>)(<summary>.{0,20}<strong>send)", r"<details open>\2", bare)
    with browser.new_page(viewport={"width": width, "height": 400}) as page:
        page.set_content(f"<!doctype html><body style='font: 15px system-ui'>{bare}")
        text = page.locator("section").inner_text()
        keep_picture(page.locator("section"), f"unstyled-{width}")
        strong = page.locator("strong:visible").all_inner_texts()
        overflow = page.evaluate("document.body.scrollWidth - innerWidth")
    read = [re.sub(r"[\s\u200b]+", " ", line).strip() for line in text.splitlines()]
    assert [line for line in read if line] == [line for line in LINES.splitlines() if line]
    assert {"analyst", "lookup", "send_mail", "boom", "the only"} <= set(strong)
    assert overflow <= 0
