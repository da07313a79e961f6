"""A batch as one document to send."""

from __future__ import annotations

import re

import pydantic
import pytest

import nbagent as nb
from nbagent.notebook import report

call = nb.ScriptedModel.call


class Verdict(pydantic.BaseModel):
    """A typed answer with text that must not become markup."""

    label: str
    score: float


def clerk() -> nb.Agent:
    """Rows 0, 5 and 10 ask for approval, row 7 fails."""

    def step(messages: list[nb.Message]) -> object:
        n = int(str(messages[0]["content"][0]["text"]).split()[-1])
        if n == 7:
            return RuntimeError("the model is <b>down</b>")
        if n % 5 == 0 and len(messages) < 3:
            return [call("pay", to=f"Ada <i>{n}</i>", amount=n)]
        return f'{{"label": "row {n} <script>alert(1)</script> | `x`", "score": {n / 2}}}'

    agent = nb.Agent(nb.ScriptedModel(step), name="cl*erk", output_type=Verdict)

    @agent.tool(approval=True)
    def pay(to: str, amount: int) -> str:
        """Pay."""
        return f"paid {amount} to {to}"

    return agent


async def mapped(n: int) -> nb.Batch:
    """A batch of so many rows, as far as it comes without answers."""
    rows = [{"n": k} for k in range(n)]
    return await nb.map(
        clerk(),
        rows,
        prompt="Classify *message*\n{n}",
        id="day",
        store=nb.MemoryStore(),
        attended=True,
        show=False,
    )


async def answer(batch: nb.Batch, key: str, *, reject: str = "") -> None:
    """Answer a row's question, and wait for the end of the row's run."""
    run = await batch[key].open(show=False)
    asked = run.interrupts[0]
    if reject:
        run.reject(asked, reason=reject)
    else:
        run.approve(asked)
    await run


async def test_c664_a_batch_is_one_document_that_runs_and_loads_nothing(tmp_path):
    """Counts, who decided what, failures, rows by field, and the card of each row that asked, as the store has them."""
    batch = await mapped(12)
    await answer(batch, "0")
    await answer(batch, "5", reject="too much | <b>money</b>")
    path = tmp_path / "report.html"
    page, text = batch.to_html(path), batch.to_markdown(tmp_path / "report")
    assert path.read_text(encoding="utf-8") == page
    assert path.stat().st_mode & 0o077 == 0
    assert (tmp_path / "report").read_text(encoding="utf-8") == text
    for form in (page, text):
        assert re.search(r"10 done · 1 waiting · 1 failed", form)
        assert "1 approved" in form
        assert "1 rejected" in form
        assert "Not answered." in form
        assert "paid 0 to Ada" in form
        markup = re.sub(r"```.*?```|`[^`\n]*`", "", form, flags=re.DOTALL)
        assert not re.search(r"<script|<b>|<i>\d|<img|src=.?http", markup)
    assert "default-src 'none'" in page
    assert re.findall(r"<summary>(\d+ · \w+)</summary>", page) == [
        "0 · done",
        "5 · done",
        "10 · waiting",
    ]
    assert page.count("<style>") <= 1 + 3  # one for the page, and one for each kind of card
    assert '">label</th><th scope="col" dir="auto">score</th></tr>' in page
    assert text.startswith("# cl\\*erk · day\n\n10 done")
    rows = [line for line in text.splitlines() if line.startswith("| 3 |")]
    assert rows == [
        "| 3 | 3 | done | Classify \\*message\\* 3 | row 3 &lt;script>alert(1)&lt;/script> \\| \\`x\\` | 1.5 |"
    ]
    assert "| 7 | ModelError: RuntimeError: the model is &lt;b>down&lt;/b> |" in text
    batch.stop()


async def test_a_report_is_bounded_and_says_what_it_leaves_out(monkeypatch):
    """Rows, decisions and cards; one row that cannot be read does not hide the others."""
    batch = await mapped(12)
    for key in ("0", "5"):
        await answer(batch, key)
    monkeypatch.setattr(report, "MAX_ROWS", 1)
    monkeypatch.setattr(report, "MAX_CARDS", 1)
    read = batch.store.read

    def broken(run_id: str, start: int = 0) -> object:
        if run_id == "day:0":
            raise nb.errors.StoreError("damaged <b>")
        return read(run_id, start)

    monkeypatch.setattr(batch.store, "read", broken)
    text, page = batch.to_markdown(), batch.to_html()
    for form in (text, page):
        assert "and 11 more" in form  # of 12
        assert "and 1 more" in form  # of the two that asked and can be read
    assert re.search(r"\| 0 \| 0 \| \w+ \| +\| \(damaged &lt;b>\) \| +\|", text)
    assert page.count('<details class="row">') == 1
    monkeypatch.undo()
    batch.stop()


async def test_a_decision_names_the_key_of_its_row():
    """Also if the run's id has only a hash of the key."""
    batch = await nb.map(
        clerk(),
        [5],
        prompt="{}",
        key=lambda _: "Ada / Bob",
        id="k",
        store=nb.MemoryStore(),
        show=False,
        attended=True,
    )
    await answer(batch, "Ada / Bob")
    assert "| Ada / Bob | pay | approved |" in batch.to_markdown()


@pytest.mark.parametrize("output_type", [None, int])
async def test_a_report_without_questions_is_counts_and_rows(output_type):
    """Of plain text, or of one value; also of a batch without rows."""
    agent = nb.Agent(nb.ScriptedModel(lambda _: "4"), name="plain", output_type=output_type)
    batch = await nb.map(agent, ["a", "b"], id="p", store=nb.MemoryStore(), prompt="{}", show=False)
    assert batch.to_markdown().splitlines()[-2:] == [
        "| 0 | 0 | done | a | 4 |",
        "| 1 | 1 | done | b | 4 |",
    ]
    assert "<details>" not in batch.to_html()
    empty = await nb.map(agent, [], id="e", store=nb.MemoryStore(), prompt="{}", show=False)
    assert empty.to_markdown() == "# plain · e\n\n0 done\n"
