"""The view is a fold over events: live or replayed, patched or whole, it is equal."""

import random
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.core.base.events import (
    CallRequested,
    Interrupted,
    ModelResponded,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.events import Event as StoredEvent
from nbagent.core.base.interrupts import Reject, Respond, Restart
from nbagent.core.base.messages import user
from nbagent.core.base.metadata import expected
from nbagent.core.base.model import Discarded, ReasoningDelta, TextDelta, ToolCallDelta
from nbagent.core.tools.call_output import MAX_PRINTED, Displayed, Printed, Progressed
from nbagent.notebook.render import plain, static
from nbagent.notebook.render.markdown import blocks
from nbagent.notebook.view import board
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import Block, NoticeItem, Print, Put, Raw
from tests.unit.notebook.page import Page, Story

STORIES = st.integers(0, 10**9).map(lambda seed: Story(random.Random(seed)).make())


@settings(max_examples=150)
@given(STORIES, st.integers(0, 10**9))
def test_a_page_that_got_every_patch_shows_the_whole_view(story, seed):
    """After enough flushes the patched page equals the snapshot, except for progress, which may lag."""
    rng, view, page, now = random.Random(seed), SingleRunView("r"), Page(), 0.0
    with patch.object(board, "MAX_OPS", rng.choice([1, 2, 5, board.MAX_OPS])):
        for event in story:
            view.apply(event)
            if rng.random() < 0.5:
                now += rng.choice([0.01, 0.5])
                page.apply(view.flush(now))
            if rng.random() < 0.5:
                while ops := view.flush(now):
                    page.apply(ops)
                if page.head is not None:
                    assert without_progress(page.view) == without_progress(view.snapshot())
        while view.dirty:
            now += 1.0
            page.apply(view.flush(now))
        assert page.view == view.snapshot()
        assert view.flush(now + 1) is None


def test_a_burst_of_thousands_of_rows_is_sent_in_pieces():
    """Each flush is limited, new items arrive in order, and in the end the page is complete."""
    calls = [CallRequested(id=f"c{n}", name="look", input={"n": n}) for n in range(3_000)]
    view, page = view_of(started()), Page()
    page.apply(view.flush(0.0))
    view.apply(responded(*calls))
    sizes = []
    while ops := view.flush(1.0):
        page.apply(ops)
        sizes.append(sum(op.op != "head" for op in ops))
        assert page.items == view.snapshot().items[: len(page.items)]
    assert max(sizes) <= board.MAX_OPS
    assert page.view == view.snapshot()


def without_progress(view):
    return [
        item.model_copy(update={"progress": None}) if item.type == "call" else item
        for item in view.items
    ] + [view.head]


@settings(max_examples=150)
@given(STORIES, st.integers(0, 10**9))
def test_replaying_the_journal_gives_the_view_that_was_live(story, seed):
    """Deltas add nothing that stored events lack, so a saved run looks as it did live."""
    rng, live, replayed, now = random.Random(seed), SingleRunView("r"), SingleRunView("r"), 0.0
    stored = [event for event in story if isinstance(event, StoredEvent)]
    # a stream or call that is unfinished at the end has no stored event yet
    story = story[: max(n for n, e in enumerate(story) if isinstance(e, StoredEvent)) + 1]
    running = _unfinished(stored)
    for event in story:
        if getattr(event, "call_id", None) in running and not isinstance(event, StoredEvent):
            continue
        live.apply(event)
        if rng.random() < 0.3:
            now += rng.choice([0.01, 0.5])
            live.flush(now)
    for event in stored:
        replayed.apply(event)
    assert live.snapshot() == replayed.snapshot()
    assert static.render(live.snapshot(), style=False) == static.render(
        replayed.snapshot(), style=False
    )
    assert plain.render(live.snapshot()) == plain.render(replayed.snapshot())


def _unfinished(stored):
    started = {e.call_id for e in stored if isinstance(e, ToolStarted)}
    return started - {e.call_id for e in stored if isinstance(e, ToolFinished)}


def started(**more):
    return RunStarted(
        at=100.0, agent="bank", model="m", messages=[user("pay")], max_turns=5, **more
    )


def responded(*calls, at=101.0, text=""):
    return ModelResponded(at=at, text=text, calls=calls)


def call(name="pay", id_="c", **input_):
    return CallRequested(id=id_, name=name, input=input_ or {"amount": 200})


def interrupt_event(id_="i", call_id="c", kind="tool", at=102.0, **more):
    more = {"input": {"amount": 200}, "metadata": {"message": "Large"}, **more}
    more.setdefault("expects", expected(kind, more["metadata"]))
    return Interrupted(at=at, id=id_, call_id=call_id, tool_name="pay", kind=kind, **more)


def view_of(*events):
    view = SingleRunView("r")
    for event in events:
        view.apply(event)
    return view


def kinds(view):
    return [item.type for item in view.snapshot().items]


def test_items_are_in_call_order_whatever_happens_first():
    """Reasoning is first, then text, then each call or its question."""
    whole = ModelResponded(
        at=101.0, text="t", reasoning="r", calls=(call(id_="a"), call(id_="b"), call(id_="c"))
    )
    view = view_of(started(), whole, interrupt_event("i2", "c"), interrupt_event("i1", "a"))
    assert kinds(view) == ["reasoning", "text", "form", "call", "form"]
    forms = [item.interrupt for item in view.snapshot().items if item.type == "form"]
    assert forms == ["i1", "i2"]


def test_headings_in_reasoning_lose_their_asterisks_and_nothing_else_does():
    """A summary's paragraphs begin with a bold line; other asterisks stay."""
    said = "**Looking it up**\n\n2**3 is **eight**.\n**Done** now"
    [item] = view_of(started(), ModelResponded(at=101.0, reasoning=said)).snapshot().items
    assert item.text == "Looking it up\n\n2**3 is **eight**.\n**Done** now"


def test_an_answered_question_becomes_the_row_of_its_call_in_place():
    """The form disappears; the row has the decision, who made it, its delay and the changed input."""
    view = view_of(started(), responded(call(), call(id_="d")), interrupt_event())
    resolved = Resolved(
        at=112.0, id="i", call_id="c", resolution=Restart(input={"amount": 50}), by="alice"
    )
    view.apply(resolved)
    assert kinds(view) == ["call", "call"]
    row = view.snapshot().items[0]
    [record] = row.decisions
    assert record.decision == "approved with changes · by alice"
    assert [(f.label, f.changed_from, f.value) for f in row.input] == [("amount", "200", "50")]
    assert (record.details, record.after) == ([], 10.0)


def test_a_rejection_shows_its_reason_and_the_call_as_rejected():
    """One row shows both."""
    view = view_of(started(), responded(call()), interrupt_event())
    no = Resolved(at=103.0, id="i", call_id="c", resolution=Reject(reason="not now"), by="form")
    view.apply(no)
    [row] = view.snapshot().items
    [record] = row.decisions
    assert row.state == "rejected"
    assert (record.decision, record.tone) == ("rejected · “not now”", "bad")


def test_a_run_is_interrupted_only_when_nothing_continues_without_an_answer():
    """While another call of the turn runs, the run is running, but the question can be answered."""
    view = view_of(started(), responded(call(), call(id_="d")), interrupt_event())
    assert view.status == "running"
    assert view.question("i") is not None
    view.apply(ToolStarted(at=103.0, call_id="d", attempt=1, owner="o", input={"amount": 200}))
    assert view.status == "running"
    view.apply(ToolFinished(at=104.0, call_id="d", output=1))
    assert view.status == "interrupted"
    assert view.snapshot().head.questions == 1
    view.apply(Resolved(at=105.0, id="i", call_id="c", resolution=Respond(output=1), by="form"))
    assert view.status == "running"
    assert view.question("i") is None


def test_a_pause_inside_an_inner_agent_makes_the_whole_run_interrupted():
    """The outer call counts as running, but only the inner question is open."""
    inner = RunStarted(
        at=102.0, scope=("c",), agent="clerk", model="m", messages=[user("x")], max_turns=3
    )
    turn = ModelResponded(at=103.0, scope=("c",), calls=(call(id_="n"),))
    view = view_of(
        started(),
        responded(call()),
        ToolStarted(at=102.0, call_id="c", attempt=1, owner="o", input={"amount": 200}),
        inner,
        turn,
        interrupt_event(call_id="n", scope=("c",)),
    )
    assert view.status == "interrupted"
    outer, form = view.snapshot().items
    assert (outer.path, form.path) == ("", "bank ▸ clerk")
    assert form.call == f"{outer.key}/0.c0"


def test_a_call_row_adds_up_the_time_of_its_bodies_without_the_wait():
    """The elapsed time is that of the bodies, restarts included."""
    run = ToolStarted(at=102.0, call_id="c", attempt=1, owner="o", input={"amount": 200})
    again = ToolStarted(at=203.0, call_id="c", attempt=2, owner="o", input={"amount": 200})
    view = view_of(started(), responded(call()), run, interrupt_event(at=103.0))
    view.apply(Resolved(at=200.0, id="i", call_id="c", resolution=Restart(), by="form"))
    view.apply(again)
    view.apply(ToolFinished(at=205.0, call_id="c", output="ok"))
    row = view.snapshot().items[0]
    assert (row.state, row.elapsed, row.result) == ("done", 3.0, "ok")
    lanes = [(s.lane, s.start, s.end) for s in view.snapshot().head.spans]
    assert ("tool", 2.0, 3.0) in lanes
    assert ("wait", 3.0, 100.0) in lanes
    assert ("tool", 103.0, 105.0) in lanes
    assert ("model", 105.0, None) in lanes


def test_a_discarded_attempt_clears_the_streamed_text_and_says_so():
    """A failed attempt's text is never beside the good one."""
    view = view_of(started(), TextDelta("half"), ToolCallDelta(0, "{", "c", "pay"))
    page = Page()
    page.apply(view.flush(1.0))
    assert [item.type for item in page.items] == ["text", "call"]
    view.apply(Discarded("connection lost"))
    page.apply(view.flush(2.0))
    (notice,) = page.items
    assert "connection lost" in notice.text
    view.apply(responded(text="good"))
    page.apply(view.flush(3.0))
    assert [item.type for item in page.items] == ["text"]


def test_text_that_was_reasoning_becomes_reasoning():
    """Until the model's answer has text of its own, there is none."""
    view = view_of(started(), TextDelta("Hm, "), TextDelta("yes."))
    page = Page()
    page.apply(view.flush(1.0))
    assert [item.type for item in page.items] == ["text"]
    view.apply(ReasoningDelta("Hm, yes.", replaces_text=True))
    page.apply(view.flush(2.0))
    assert [item.type for item in page.items] == ["reasoning"]
    view.apply(TextDelta("Yes."))
    page.apply(view.flush(3.0))
    assert [item.type for item in page.items] == ["reasoning", "text"]
    view.apply(replace(responded(text="Yes."), reasoning="Hm, yes."))
    page.apply(view.flush(4.0))
    assert [item.type for item in page.items] == ["reasoning", "text"]


def test_a_streamed_text_is_not_sent_again():
    """The stored response sends only the last block."""
    view = view_of(started(), TextDelta("One.\n\n"), TextDelta("Two."))
    view.flush(1.0)
    view.apply(responded(text="One.\n\nTwo."))
    ops = [op for op in view.flush(2.0) if not hasattr(op, "head")]
    assert [type(op) for op in ops] == [Block]
    view = view_of(started(), TextDelta("One."))
    view.flush(1.0)
    view.apply(responded(text="Other."))
    ops = [op for op in view.flush(2.0) if not hasattr(op, "head")]
    assert [type(op) for op in ops] == [Put]


def test_streamed_code_is_not_sent_again():
    """A long block without colors is sent once, and in the end equals the rendered block."""
    code = "".join(f"row < {n} & more 🎉\n" for n in range(2_000))
    view, page, sent = view_of(started()), Page(), 0
    text = f"```\n{code}```\n\nDone.\n"
    for step, start in enumerate(range(0, len(text), 997)):
        view.apply(TextDelta(text[start : start + 997]))
        ops = view.flush(step * 0.05)
        sent += sum(len(op.model_dump_json()) for op in ops or () if op.op != "head")
        page.apply(ops)
    view.apply(responded(text=text))
    page.apply(view.flush(100.0))
    assert page.view == view.snapshot()
    assert page.items[0].blocks == blocks(text)
    assert sent < 1.3 * len(text.encode())


PIECES = [
    "word ",
    "**b** ",
    "\n\n",
    "- item\n",
    "```py\nx<1 & 2\n\n",
    "```\n",
    "~~~\nné 🎉\n",
    "# h\n",
]
PIECES += [
    "| a |\n|---|\n| 1 |\n",
    "$$\ny\n$$\n",
    "x" * 700 + " ",
    "row of code;\n" * 90,
    "[l]: http://x.y\n",
]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.integers(0, 10**9))
def test_the_page_equals_the_kernel_at_any_pace_of_a_text(pieces, seed):
    """At any pace, page and kernel agree after each flush; the end equals the rendered text."""
    rng, text, now, start = random.Random(seed), "".join(pieces), 0.0, 0
    view, page = view_of(started()), Page()
    page.apply(view.flush(now))
    while start < len(text):
        size = rng.choice([7, 50, 399, 400, 1_000, 5_000])
        view.apply(TextDelta(text[start : start + size]))
        start, now = start + size, now + rng.choice([0.05, 0.3])
        page.apply(view.flush(now))
        assert page.view == view.snapshot()
    view.apply(responded(text=text))
    page.apply(view.flush(now + 1))
    assert page.view == view.snapshot()
    drawn = [item.blocks for item in page.items if item.type == "text"]
    assert drawn == ([blocks(text)] if text.strip() else [])


def test_deltas_between_two_flushes_are_sent_as_one():
    """A thousand tokens and a hundred printed lines are two operations."""
    long = "word " * 1_000
    view = view_of(started(), TextDelta(long))
    view.flush(1.0)
    for _ in range(1_000):
        view.apply(TextDelta("tok "))
    (op,) = view.flush(2.0)
    assert op == Raw(key="0.t", text="tok " * 1_000)
    view = view_of(started(), responded(call()))
    view.apply(ToolStarted(at=102.0, call_id="c", attempt=1, owner="o", input={"amount": 200}))
    view.flush(1.0)
    for _ in range(100):
        view.apply(Printed("c", "stdout", "line\n"))
    assert view.flush(2.0) == [Print(key="0.c0", text="line\n" * 100)]
    assert view.flush(3.0) is None


def test_progress_of_a_heavy_row_is_sent_once_a_second():
    """A large picture is not sent again with every step of a progress bar."""
    view = view_of(started(), responded(call()))
    view.apply(ToolStarted(at=102.0, call_id="c", attempt=1, owner="o", input={"amount": 200}))
    view.apply(Displayed("c", {"text/html": "<p>" + "word " * 20_000}))
    view.flush(0.0)
    sent = 0
    for step in range(1, 41):
        view.apply(Progressed("c", step / 40, f"step {step}"))
        sent += view.flush(step * 0.05) is not None
    assert sent == 2


def test_endless_printing_is_no_longer_shown_live_and_is_complete_at_the_end():
    """A tool that prints without end does not fill the page."""
    view = view_of(started(), responded(call()))
    view.apply(ToolStarted(at=102.0, call_id="c", attempt=1, owner="o", input={"amount": 200}))
    for _ in range(MAX_PRINTED):
        view.apply(Printed("c", "stdout", "line\n"))
    view.flush(1.0)
    assert len(view.snapshot().items[0].printed) < MAX_PRINTED + 100
    view.apply(ToolFinished(at=103.0, call_id="c", output=1, printed="head\n…\ntail"))
    assert view.snapshot().items[0].printed == "head\n…\ntail"


def test_a_run_that_ends_with_open_questions_leaves_no_form_behind():
    """A run that has ended has no buttons; calls that were running are marked."""
    for end, states in (
        (RunCancelled(at=110.0, by="form", still_running=("d",)), ["cancelled", "cancelled"]),
        (RunFailed(at=110.0, error="ToolFailed", message="x"), ["cancelled", "failed"]),
    ):
        view = view_of(started(), responded(call(), call(id_="d")), interrupt_event())
        view.apply(ToolStarted(at=103.0, call_id="d", attempt=1, owner="o", input={"amount": 200}))
        view.apply(end)
        snapshot = view.snapshot()
        assert kinds(view) == ["call", "call", "notice"]
        assert [record.decision for record in snapshot.items[0].decisions] == ["not answered"]
        assert "200" in snapshot.items[0].brief, "the row shows what was asked about"
        assert [i.state for i in snapshot.items if i.type == "call"] == states
        assert view.question("i") is None
        assert snapshot.head.questions == 0


def test_a_retried_run_asks_its_open_question_again():
    """After a retry the open question is there again, and the failure is gone."""
    view = view_of(
        started(),
        responded(call(), call(id_="d")),
        interrupt_event(),
        RunFailed(at=110.0, error="ModelError", message="x"),
        RunRetried(at=110.5, by="code"),
        ToolStarted(at=111.0, call_id="d", attempt=1, owner="o", input={"amount": 200}),
    )
    assert kinds(view) == ["form", "call"]
    assert view.status == "running"
    assert view.question("i") is not None


def test_a_retried_run_runs_its_failed_call_again():
    """The failed row continues, counts the time of both attempts, and the failure is removed."""
    view = view_of(
        started(),
        responded(call()),
        ToolStarted(at=102.0, call_id="c", attempt=1, owner="o", input={"amount": 200}),
        RunFailed(at=103.0, error="ToolFailed", message="x"),
    )
    assert view.snapshot().items[0].state == "failed"
    view.apply(RunRetried(at=110.0, by="code"))
    assert (kinds(view), view.status) == (["call"], "running")
    again = ToolStarted(at=111.0, call_id="c", attempt=2, owner="o", input={"amount": 200})
    view.apply(again)
    view.apply(ToolFinished(at=113.0, call_id="c", output="ok"))
    row = view.snapshot().items[0]
    assert (row.state, row.elapsed) == ("done", 3.0)


def test_a_question_inside_a_body_leaves_its_call_open():
    """``ctx.ask``: the answer goes to the line that asked, and the row continues from there."""
    run = ToolStarted(at=102.0, call_id="c", attempt=1, owner="o", input={"amount": 200})
    one = interrupt_event("i1", kind="ask", ask=0, at=103.0, reply_schema={"type": "integer"})
    two = interrupt_event("i2", kind="ask", ask=1, at=103.0, reply_schema={"type": "integer"})
    view = view_of(started(), responded(call()), run, one, two)
    assert view.status == "interrupted"
    assert view.question("i1").resolve("submit", {"text": "3"}) == Respond(output=3)
    yes = Resolved(at=110.0, id="i1", call_id="c", resolution=Respond(output=3), by="form")
    view.apply(yes)
    assert view.status == "interrupted"
    no = Resolved(at=120.0, id="i2", call_id="c", resolution=Reject(), by="form")
    view.apply(no)
    view.apply(run.model_copy(update={"at": 120.0}))
    assert view.status == "running"
    view.apply(ToolFinished(at=121.0, call_id="c", output="ok"))
    row, first, second = view.snapshot().items
    assert (row.state, row.elapsed, row.result) == ("done", 2.0, "ok")
    assert (first.decision, second.decision) == ("you answered 3", "declined")


def test_an_external_interrupt_has_no_buttons():
    """The form is shown, but no button or page message can resolve it."""
    view = view_of(
        started(), responded(call()), interrupt_event(external="digest", expects="external")
    )
    form = view.snapshot().items[1]
    assert (form.actions, form.spec) == ([], None)
    for action in ("approve", "submit", "reject"):
        assert isinstance(view.question("i").resolve(action), list)


def test_a_row_shows_its_interim_result_and_the_awaited_one_then_the_final_one():
    """The form has no buttons; an outside error becomes the row's; a rejection leaves the interim result."""
    awaited = interrupt_event(external="digest", expects="external", kind="later")
    interim = ToolFinished(at=102.0, call_id="c", output="started, job 7")
    for resolution, row in [
        (Respond(output=7), ("done", "7")),
        (Respond(error="disk full"), ("failed", "disk full")),
        (Reject(reason="late"), ("done", "started, job 7")),
    ]:
        view = view_of(started(), responded(call()), awaited, interim)
        now, form = view.snapshot().items
        assert (now.state, now.result, form.actions) == ("done", "started, job 7", [])
        assert (form.title, form.note) == ("Large", "started, job 7")
        assert view.status == "running"  # the model continues
        view.apply(ModelResponded(at=103.0, text="It runs."))
        assert view.status == "interrupted"
        head = view.snapshot().head
        assert (head.status_text, head.questions) == ("waiting for another system", 0)
        view.apply(Resolved(at=110.0, id="i", call_id="c", resolution=resolution, by="external"))
        then, *_ = view.snapshot().items
        [record] = then.decisions
        assert (then.state, then.result) == row
        assert record.title == "pay"
        assert record.decision.endswith(" · by another system")
        assert "you" not in record.decision


def test_a_saved_history_with_an_open_pause_is_drawn_with_its_question():
    """A run that starts from paused messages shows the calls and the forms it starts with."""
    pause = interrupt_event().model_dump(mode="json")
    open_call = {"type": "tool_call", "id": "c", "name": "pay", "input": {"amount": 200}}
    open_call["nbagent"] = {"status": "waiting", "pause": pause}
    done = {"type": "tool_call", "id": "d", "name": "look", "input": {}}
    result = {"type": "tool_result", "id": "d", "name": "look", "output": "seen"}
    done["nbagent"] = {"status": "done", "result": result}
    messages = [user("pay"), {"role": "assistant", "content": [open_call, done]}]
    view = view_of(RunStarted(at=100.0, agent="bank", model="m", messages=messages, max_turns=5))
    assert kinds(view) == ["form", "call"]
    assert view.status == "interrupted"
    assert view.snapshot().items[1].result == "seen"


def test_the_final_text_is_shown_once():
    """A final answer is added only if no response contains it."""
    said = view_of(started(), responded(text="done"), RunCompleted(at=102.0, text="done"))
    assert kinds(said) == ["text"]
    other = view_of(started(), responded(call()), RunCompleted(at=102.0, text="done"))
    assert kinds(other) == ["call", "text"]


def test_drafts_are_kept_for_later_pages():
    """A reloaded page shows the typed values; open pages get no patch."""
    view = view_of(started(), responded(call()), interrupt_event(editable=True))
    view.flush(1.0)
    view.update_form("i", {"drafts": {"fields": {"amount": {"text": "1"}}}}, send=False)
    assert view.flush(2.0) is None
    assert view.snapshot().items[0].drafts == {"fields": {"amount": {"text": "1"}}}


def test_a_notice_of_the_notebook_is_added_replaced_and_removed():
    """The notebook layer adds and removes its notices by key."""
    view, page = view_of(started()), Page()
    view.notice("earlier", NoticeItem(key="earlier", text="one"))
    page.apply(view.flush(1.0))
    view.notice("earlier", NoticeItem(key="earlier", text="two"))
    page.apply(view.flush(2.0))
    assert [item.text for item in page.items] == ["two"]
    view.notice("earlier", None)
    page.apply(view.flush(3.0))
    assert page.items == []


@pytest.mark.parametrize(
    ("reason", "says"),
    [("length", "limit of output tokens"), ("content_filter", "content filter"), ("other", None)],
)
def test_a_truncated_answer_says_so_in_every_view(reason, says):
    """The notice follows the text, live and replayed, in HTML and as text."""
    event = responded(text="half").model_copy(update={"finish_reason": reason})
    live, page = view_of(started(), TextDelta("half")), Page()
    page.apply(live.flush(1.0))
    live.apply(event)
    page.apply(live.flush(2.0))
    assert page.view == view_of(started(), event).snapshot()
    told = [item.text for item in page.items if item.type == "notice"]
    assert len(told) == (says is not None)
    for drawn in (*told, static.render(page.view, style=False), plain.render(page.view)):
        assert says is None or says in drawn
    if says is not None:
        drawn = plain.render(page.view)
        assert drawn.index("half") < drawn.index(says)


def test_the_time_strip_stays_short_however_long_the_run():
    """A run of 2,000 turns has as small a head as one of 100."""
    view = view_of(started().model_copy(update={"max_turns": 3_000}))
    for turn in range(2_000):
        view.apply(responded(call(id_=f"c{turn}"), at=101.0 + turn * 10))
        view.apply(ToolFinished(at=105.0 + turn * 10, call_id=f"c{turn}", output=1))
    spans = view.snapshot().head.spans
    assert len(spans) <= 130
    assert max(s.end or 0 for s in spans) > 19_000


def test_static_and_plain_views_contain_no_time_no_id_and_no_token_count():
    """The same run at another time, with other ids and prices, gives the same static views."""

    def drawn(offset, ids, tokens):
        view = view_of(
            started().model_copy(update={"at": 100.0 + offset}),
            ModelResponded(
                at=101.0 + offset * 2, calls=(call(id_=ids),), input_tokens=tokens, cost=tokens
            ),
            interrupt_event(f"q{ids}", ids, at=102.0 + offset * 3),
            Resolved(
                at=103.0 + offset * 4, id=f"q{ids}", call_id=ids, resolution=Restart(), by="form"
            ),
            ToolFinished(at=104.0 + offset * 5, call_id=ids, output="ok"),
        )
        snapshot = view.snapshot()
        return static.render(snapshot, style=False), plain.render(snapshot)

    assert drawn(0, "a", 1) == drawn(77.7, "b", 999)
    html, text = drawn(0, "a", 1)
    assert " id=" not in html
    assert "approved" in html
    assert "approved" in text
