"""Agent runs in real kernels of several versions: cards, forms, stopping, re-running, and no person."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.kernels import KERNELS, FrontEnd, front_end

SETUP = """
import nbagent as nb
call = nb.ScriptedModel.call
ran = []

def agent(*steps, **options):
    made = nb.Agent(nb.ScriptedModel(list(steps)), name="banker", **options)
    @made.tool
    def transfer(amount: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Sure?"))
        ran.append(amount)
        print("from the tool")
        return f"sent {amount}"
    return made
"""
RUN = 'agent([call("transfer", amount=5)], "all done").run("go")'


class Page:
    """A front end that reads cards and presses their buttons."""

    def __init__(self, kernel: FrontEnd) -> None:
        self.kernel = kernel
        kernel.must_run(SETUP)

    def start(self, code: str, *, cell_id: str = "cell") -> str:
        """Run a cell, after the messages of earlier cells were cleared."""
        self.kernel.seen.clear()
        return self.kernel.send(code, cell_id=cell_id)

    def card(self) -> str:
        """The comm of the newest card."""

        def cards() -> list[str]:
            return [
                m["content"]["comm_id"]
                for m in self.kernel.seen
                if m["msg_type"] == "comm_open" and "snapshot" in m["content"]["data"]["state"]
            ]

        self.kernel.read_until(lambda: bool(cards()))
        assert cards(), self.kernel.errors()
        return cards()[-1]

    def question(self, card: str) -> str:
        """Send hello as a page does, and wait for the interrupt id of an open form."""
        self.kernel.answer(card, {"type": "hello"})
        self.kernel.read_until(lambda: bool(self.forms(card)))
        return self.forms(card)[-1]["interrupt"]

    def press(self, card: str, interrupt: str, action: str = "approve", **more: Any) -> str:
        """Press a button; return the submission's id."""
        submission = f"s{time.monotonic_ns()}"
        self.kernel.answer(
            card,
            {
                "type": "answer",
                "interrupt": interrupt,
                "submission": submission,
                "action": action,
                **more,
            },
        )
        return submission

    def receipt(self, card: str, submission: str) -> dict[str, Any]:
        """Wait for the receipt of a press."""

        def found() -> list[dict[str, Any]]:
            sent = self._sent(card)
            return [m for m in sent if m["type"] == "receipt" and m["submission"] == submission]

        self.kernel.read_until(lambda: bool(found()))
        return found()[0]

    def status(self, card: str, wanted: str) -> None:
        """Wait until the card has this status."""
        self.kernel.read_until(lambda: wanted in self._statuses(card))
        assert wanted in self._statuses(card), self._statuses(card)

    def _sent(self, card: str) -> list[dict[str, Any]]:
        return [
            m["content"]["data"]["content"]
            for m in self.kernel.seen
            if m["msg_type"] == "comm_msg"
            and m["content"]["comm_id"] == card
            and m["content"]["data"].get("method") == "custom"
        ]

    def _items(self, card: str) -> Iterator[dict[str, Any]]:
        for message in self._sent(card):
            if message["type"] == "snapshot":
                yield from message["view"]["items"]
            if message["type"] == "patch":
                yield from (op["item"] for op in message["ops"] if op["op"] == "put")

    def drawn(self, card: str) -> str:
        """All that was sent to a card, as JSON."""
        return json.dumps(self._sent(card))

    def forms(self, card: str) -> list[dict[str, Any]]:
        return [item for item in self._items(card) if item["type"] == "form"]

    def _statuses(self, card: str) -> list[str]:
        found = []
        for message in self._sent(card):
            if message["type"] == "snapshot":
                found.append(message["view"]["head"]["status"])
            if message["type"] == "patch":
                found += [op["head"]["status"] for op in message["ops"] if op["op"] == "head"]
        return found


@pytest.fixture(scope="module", params=KERNELS)
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    """A kernel of each version with an agent defined."""
    version, subshell = request.param
    with front_end(version, subshell=subshell) as kernel:
        yield Page(kernel)


@pytest.fixture(scope="module")
def newest() -> Iterator[Page]:
    """The newest kernel, with a subshell as in JupyterLab."""
    with front_end(subshell=True) as kernel:
        yield Page(kernel)


WAYS = {
    "non-blocking": (RUN, False),
    "await": (f"print('got', (await {RUN}).text)", True),
    "sync": (f"print('got', {RUN.replace('.run(', '.run_sync(')}.text)", True),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_form_is_answered_and_the_run_continues(page: Page, way: str) -> None:
    """The main use case, on every kernel: ask in the cell, approve, run the tool once, finish."""
    cell, blocks = WAYS[way]
    page.kernel.must_run("ran.clear()")
    request = page.start(cell)
    card = page.card()
    interrupt = page.question(card)
    if not blocks:
        assert page.kernel.finish(request).status == "ok", page.kernel.errors()
    first = page.press(card, interrupt)
    second = page.press(card, interrupt)
    assert page.receipt(card, first)["ok"]
    refused = page.receipt(card, second)
    assert not refused["ok"]
    assert "already answered" in refused["errors"][0]["message"]
    page.status(card, "completed")
    outcome = page.kernel.finish(request)
    assert outcome.status == "ok", page.kernel.errors()
    if blocks:
        assert "got all done" in outcome.stdout
    assert "from the tool" not in outcome.stdout, "what a tool prints belongs into its row"
    assert page.kernel.must_run("print(ran)") == "[5]\n"


SLOW_STORE = """
class SlowStore:
    def __init__(self): self._kept = nb.MemoryStore()
    def append(self, *event): self._kept.append(*event)
    def read(self, *which): return self._kept.read(*which)
"""


def test_a_form_is_answered_where_a_thread_writes_the_store(page: Page) -> None:
    """A thread writes to a store that may block, and the card's patches still reach the page."""
    page.kernel.must_run(SLOW_STORE)
    page.start(RUN.replace('"all done"', '"all done", store=SlowStore()'))
    card = page.card()
    interrupt = page.question(card)
    assert page.receipt(card, page.press(card, interrupt))["ok"]
    page.status(card, "completed")


def test_a_malformed_answer_never_approves(newest: Page) -> None:
    """Malformed presses get a receipt with an error, and the question stays open (C80)."""
    newest.kernel.must_run("ran.clear()")
    newest.start(RUN)
    card = newest.card()
    interrupt = newest.question(card)
    for action, more in [
        ("submit", {}),
        ("approve", {"drafts": {}}),
        ("approve", {"drafts": {"fields": {"amount": {"text": "9"}}}}),
        ("no such button", {}),
        ("approve", {"reason": {"not": "a text"}}),
    ]:
        receipt = newest.receipt(card, newest.press(card, interrupt, action, **more))
        assert not receipt["ok"], (action, more)
        assert receipt["errors"][0]["message"]
    for junk in (None, 5, "approve", {}, {"type": "answer"}, {"type": "answer", "action": True}):
        newest.kernel.answer(card, junk)  # type: ignore[arg-type]  # what a page must never send
    unknown = newest.receipt(card, newest.press(card, "0" * 32))
    assert not unknown["ok"]
    assert newest.kernel.must_run("print(ran)") == "[]\n"
    assert newest.receipt(card, newest.press(card, interrupt))["ok"]
    newest.status(card, "completed")
    assert newest.kernel.must_run("print(ran)") == "[5]\n"


def test_the_stop_button_of_the_card_cancels_the_run(newest: Page) -> None:
    """Stop is final: the form closes, and no tool ran."""
    newest.kernel.must_run("ran.clear()")
    newest.start(f"run = {RUN}")
    card = newest.card()
    newest.question(card)
    newest.kernel.answer(card, {"type": "stop"})
    newest.status(card, "cancelled")
    assert newest.kernel.must_run("print(run.status, ran)") == "cancelled []\n"


@pytest.mark.parametrize("way", ["await", "sync"])
def test_a_kernel_interrupt_cancels_the_run_that_a_cell_waits_for(newest: Page, way: str) -> None:
    """Jupyter's own stop button ends the cell and the run in it."""
    request = newest.start(WAYS[way][0])
    card = newest.card()
    newest.question(card)
    newest.kernel.interrupt()
    assert newest.kernel.finish(request).status == "error"
    newest.status(card, "cancelled")


def test_rerunning_a_cell_cancels_the_run_it_left_waiting(newest: Page) -> None:
    """Two runs of one execution stay; runs of an earlier execution of the cell are cancelled."""
    cell = f"a = {RUN}\nb = {RUN}\nkept = globals().setdefault('kept', []) + [a, b]"
    assert newest.kernel.finish(newest.start(cell, cell_id="one")).status == "ok"
    newest.kernel.must_run("await a.settled(); await b.settled()")
    assert newest.kernel.must_run("print([r.status for r in kept])") == (
        "['interrupted', 'interrupted']\n"
    )
    assert newest.kernel.finish(newest.start(cell, cell_id="one")).status == "ok"
    newest.kernel.must_run("await a.settled(); await b.settled()")
    assert newest.kernel.must_run("print([r.status for r in kept])") == (
        "['cancelled', 'cancelled', 'interrupted', 'interrupted']\n"
    )
    assert newest.kernel.finish(newest.start(cell, cell_id="another")).status == "ok"
    assert newest.kernel.must_run("print([r.status for r in kept[:4]])") == (
        "['cancelled', 'cancelled', 'interrupted', 'interrupted']\n"
    )


def test_a_run_on_the_last_line_shows_no_second_copy(newest: Page) -> None:
    """``agent.run`` already shows the card; another cell shows another view."""
    shown = newest.kernel.finish(newest.start(f"run = {RUN}\nrun", cell_id="here"))
    assert len([d for d in shown.displays if "text/plain" in d]) == 1, shown.displays
    again = newest.kernel.finish(newest.kernel.send("run", cell_id="there"))
    assert len(again.displays) == 1
    newest.kernel.must_run("await run.cancel()")


def test_a_redefined_tool_is_the_one_that_runs(newest: Page) -> None:
    """The newest body runs; if its parameters changed, the question is asked again with a note."""
    newest.kernel.must_run("made = agent([call('transfer', amount=5)], 'fine')")
    newest.start("run = made.run('go')")
    card = newest.card()
    interrupt = newest.question(card)
    newest.kernel.must_run("""
    @made.tool
    def transfer(amount: float, ctx: nb.ToolContext) -> str:
        return f"newly sent {amount}"
    """)
    assert newest.receipt(card, newest.press(card, interrupt))["ok"]
    newest.kernel.must_run("await run.settled()")
    told = newest.kernel.must_run("print(run.status, run.interrupts[0].note)")
    assert told.startswith("interrupted The tool's parameters changed")
    newest.kernel.must_run("run.restart(run.interrupts[0]); await run")
    assert "newly sent 5.0" in newest.kernel.must_run("print(run.calls['transfer'][0].output)")


def test_without_a_person_a_question_fails_the_cell_and_stays_answerable(newest: Page) -> None:
    """With nbclient, nbval and papermill: no hang, one static display, and an error that says what to do."""
    kernel = newest.kernel
    waiting = kernel.run(f"run = {RUN}\nrun", allow_stdin=False)
    assert (waiting.status, waiting.error) == ("error", "HumanInputRequired")
    assert [sorted(d) for d in waiting.displays if "text/html" in d] == [
        ["text/html", "text/plain"]
    ]
    awaited = kernel.run(f"await {RUN}", cell_id="2", allow_stdin=False)
    assert awaited.error == "HumanInputRequired"
    answered = kernel.run(
        RUN.replace('"go"', '"go", answers={"transfer": True}'), cell_id="3", allow_stdin=False
    )
    assert answered.status == "ok", kernel.errors()
    assert "all done" in answered.displays[0]["text/plain"]
    later = kernel.run("run.restart(run.interrupts[0])\nprint((await run).text)", allow_stdin=False)
    assert later.stdout == "all done\n", kernel.errors()


def test_a_finished_run_becomes_html_that_needs_no_kernel() -> None:
    """After a page's hello and without further actions, live widgets close and static HTML stays."""
    left = (
        "from ipywidgets.widgets.widget import _instances\n"
        "print([type(each).__name__ for each in _instances.values()])"
    )
    with front_end(subshell=True) as kernel:
        page = Page(kernel)
        page.start('run = agent("hi there").run("go")')
        card = page.card()
        kernel.answer(card, {"type": "hello"})

        def updates() -> list[dict[str, Any]]:
            seen = (m for m in kernel.seen if m["msg_type"] == "update_display_data")
            return [m["content"]["data"] for m in seen]

        kernel.read_until(lambda: bool(updates()))
        assert sorted(updates()[-1]) == ["text/html", "text/plain"]
        assert "hi there" in updates()[-1]["text/html"]
        what = "every widget and layout of the card is closed; the code that all cards share stays"
        assert kernel.must_run(left) == "['FrontEnd', 'Layout']\n", what


LEAVERS = """
failed = []
for error in (SystemExit, KeyboardInterrupt, GeneratorExit):
    @nb.tool
    async def on_the_loop() -> str:
        raise error("out")
    @nb.tool(thread=False)
    def without_thread() -> str:
        raise error("out")
    @nb.tool
    def in_thread() -> str:
        raise error("out")
    @nb.tool
    async def in_pieces():
        yield "a piece"
        raise error("out")
    for tool in (on_the_loop, without_thread, in_thread, in_pieces):
        model = nb.ScriptedModel([call(tool.name), "went on"])
        result = await nb.Agent(model, tools=[tool]).run("go", show=False)
        failed.append((result.calls[tool.name][0].failed, result.text))
print(len(failed), set(failed))
"""


def test_a_tool_that_exits_ends_neither_the_kernel_nor_later_runs(page: Page) -> None:
    """The body runs on the kernel's loop or in a thread; only its call fails."""
    assert page.kernel.must_run(LEAVERS) == "12 {(True, 'went on')}\n"
    assert page.kernel.must_run("print('alive')") == "alive\n"


ROWS = """
payer = nb.Agent(
    nb.ScriptedModel(lambda m: "done" if m[-1]["role"] == "tool" else [call("pay", amount=1)]), name="payer"
)

@payer.tool(approval=True)
def pay(amount: int) -> str:
    ran.append(amount)
    return "paid"

def begin(**options):
    return nb.map(payer, range(2), prompt="row {}", id="b", store=nb.MemoryStore(), **options)
"""


def test_c493_answers_are_used_where_a_person_is_there_but_nothing_is_shown() -> None:
    """Without a form, an awaited run would wait forever for the person."""
    with front_end() as kernel:
        kernel.must_run(SETUP + ROWS)
        given = 'payer.{}("go", answers={{"pay": True}}, show=False)'
        kernel.must_run(f"await {given.format('run')}")
        kernel.must_run(f"assert {given.format('run_sync')}.text == 'done'")
        kernel.must_run(f"await {given.format('chat')}.runs[0]")
        kernel.must_run("batch = await begin(answers={'pay': True}, show=False)")
        assert kernel.must_run("print(ran, batch.counts['completed'])").strip() == f"{[1] * 5} 2"


def test_c494_a_batch_that_waits_for_a_person_is_displayed_where_nobody_is_there() -> None:
    with front_end() as kernel:
        kernel.must_run(SETUP + ROWS)
        shown = kernel.run("batch = begin(attended=True)\nawait batch", allow_stdin=False)
        assert (shown.status, shown.error) == ("ok", "")
        assert "2 waiting" in shown.displays[-1]["text/plain"]
