"""A cell waits while the page's messages arrive, on real kernels of several versions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.kernels import KERNELS, NEWEST, Form, FrontEnd, front_end, journey

SETUP = """
import asyncio, threading, time
from concurrent.futures import Future
import ipywidgets
from traitlets import Unicode
from nbagent.notebook import kernel

private = asyncio.new_event_loop()
threading.Thread(target=private.run_forever, daemon=True).start()

class Question(ipywidgets.DOMWidget):
    '''A form: its handler does nothing but hand the answer to the loop that waits.'''
    typed = Unicode().tag(sync=True)
    def __init__(self):
        super().__init__()
        self.on_msg(self._answered)
    def asked(self, loop):
        self.loop, self.future = loop, loop.create_future()
        return self.future
    def _answered(self, widget, content, buffers):
        print('handled', content['value'])
        def settle():
            if not self.future.done():
                self.future.set_result(content['value'])
        self.loop.call_soon_threadsafe(settle)

question = Question()

async def run(loop):
    '''Stands for an agent run: waits for an answer on its loop.'''
    future = question.asked(loop)
    print('waiting')
    return await future

def on_private_loop():
    return asyncio.run_coroutine_threadsafe(run(private), private)

stopped = []
def stop():
    stopped.append('stopped')
print(question.comm.comm_id)
"""

FORMS = [
    Form(
        "a task that outlives its cell",
        """
        async def task():
            print('got', await run(kernel.kernel_loop()))
        kept = kernel.kernel_loop().create_task(task())
        """,
        blocks=False,
    ),
    Form(
        "await",
        """
        task = asyncio.ensure_future(run(kernel.kernel_loop()))
        print('got', await kernel.wait(task, on_kernel_interrupt=stop))
        """,
        blocks=True,
    ),
    Form(
        "await a run on another loop",
        "print('got', await kernel.wait(on_private_loop(), on_kernel_interrupt=stop))",
        blocks=True,
    ),
    Form(
        "block",
        "print('got', kernel.pump(on_private_loop(), on_kernel_interrupt=stop))",
        blocks=True,
    ),
    Form(
        "block in a cell that awaits",
        "await asyncio.sleep(0)\nprint('got', kernel.pump(on_private_loop()))",
        blocks=True,
    ),
]
RENAMED = """
class SocketPair:
    from_socket = get_ipython().kernel.shell_channel_thread.manager._shell_channel_to_main.from_socket
get_ipython().kernel.shell_channel_thread.manager._shell_channel_to_main = SocketPair()
"""
AWAIT, BLOCK = FORMS[1], FORMS[3]
BLOCKING = pytest.mark.parametrize("form", FORMS[1:], ids=lambda form: form.name)


class Attached:
    """A front end after the setup."""

    def __init__(self, page: FrontEnd, *, stuck: bool = False, elsewhere: bool = False) -> None:
        self.page = page
        self.stuck = stuck
        """Whether messages that arrive while a cell awaits something else are queued behind the cell."""
        self.elsewhere = elsewhere
        """Whether handlers run on the thread of a subshell."""
        self.comm_id = page.must_run(SETUP).strip()

    def started(self, form: Form) -> str:
        """Start a cell and check that it waits."""
        self.page.seen.clear()
        request = self.page.send(form.cell)
        self.page.until_printed("waiting")
        return request


@pytest.fixture(scope="module", params=KERNELS)
def attached(request: pytest.FixtureRequest) -> Iterator[Attached]:
    """A kernel of each version, with comm messages to the main shell or to a subshell."""
    version, subshell = request.param
    with front_end(version, subshell=subshell) as page:
        concurrent = version in {"7.0.1", "7.3.0"}
        stuck, elsewhere = concurrent and not subshell, concurrent and subshell
        yield Attached(page, stuck=stuck, elsewhere=elsewhere)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_an_answer_reaches_a_run_however_its_cell_waits(attached: Attached, form: Form) -> None:
    """The main use case: a cell waits, the page answers, and the work continues in the cell."""
    journey(attached.page, form, attached.comm_id, {"value": "yes"}, "got yes")


@BLOCKING
def test_cells_queued_behind_a_waiting_cell_keep_their_order(
    attached: Attached, form: Form
) -> None:
    """Only comm messages overtake the cell; everything else runs after it, in order."""
    page = attached.page
    request = attached.started(form)
    later = [page.send(f"print('later {number}')") for number in range(3)]
    page.answer(attached.comm_id, {"value": "now"})
    assert page.finish(request).status == "ok", page.errors()
    for each in later:
        assert page.finish(each).status == "ok", page.errors()
    lines = [line for line in page.printed().split("\n") if not line.startswith("handled")]
    assert lines[1:5] == ["got now", "later 0", "later 1", "later 2"]


@BLOCKING
def test_the_stop_button_reaches_a_waiting_cell(attached: Attached, form: Form) -> None:
    """The callback that cancels the run is called once, the cell ends, and the kernel continues."""
    page = attached.page
    page.must_run("stopped.clear()")
    request = attached.started(form)
    page.interrupt()
    outcome = page.finish(request)
    blocks = "pump" in form.cell
    assert outcome.error == ("KeyboardInterrupt" if blocks else "CancelledError")
    called = [] if "on_kernel_interrupt" not in form.cell else ["stopped"]
    assert page.must_run("print(stopped)") == f"{called}\n"
    journey(page, form, attached.comm_id, {"value": "again"}, "got again")


def test_state_typed_into_a_widget_arrives_while_the_cell_waits(attached: Attached) -> None:
    """A person's ipywidgets beside the form work too, one change after the other."""
    page = attached.page
    for form in (AWAIT, BLOCK):
        request = attached.started(form)
        for text in ("a", "ab"):
            change = page.change(attached.comm_id, {"typed": text})
            assert page.until_states(change, 2) == ["busy", "idle"]
        page.answer(attached.comm_id, {"value": "now"})
        assert page.finish(request).status == "ok", page.errors()
        assert page.must_run("print(question.typed)") == "ab\n"


def test_messages_and_output_of_a_thread_reach_the_page(attached: Attached) -> None:
    """A thread has no parent request, and a store's thread may be the one that reports an answer."""
    page = attached.page
    page.seen.clear()
    page.must_run("""
    def work():
        question.send({"said": "by a thread"})
        get_ipython().display_pub.publish({"text/plain": "shown by a thread"})
        told.append(kernel.variables()["question"] is question and kernel.cell_id())
    told = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    """)
    assert page.must_run("print(told)") == "['cell']\n"
    sent = [m["content"]["data"] for m in page.seen if m["msg_type"] == "comm_msg"]
    assert {"method": "custom", "content": {"said": "by a thread"}} in sent
    shown = [m["content"]["data"] for m in page.seen if m["msg_type"] == "display_data"]
    assert {"text/plain": "shown by a thread"} in shown


def test_two_waits_in_one_cell_end_in_any_order(attached: Attached) -> None:
    """Comm messages pass as long as any wait is active."""
    page = attached.page
    page.seen.clear()
    cell = """
    first = asyncio.ensure_future(asyncio.sleep(0))
    first.add_done_callback(lambda _: print('first'))
    second = asyncio.ensure_future(run(kernel.kernel_loop()))
    waits = [kernel.wait(each, on_kernel_interrupt=None) for each in (first, second)]
    print('got', (await asyncio.gather(*waits))[1])
    """
    request = page.send(cell)
    page.until_printed("waiting")
    page.until_printed("first")
    page.answer(attached.comm_id, {"value": "both"})
    assert page.finish(request).stdout.endswith("got both\n"), page.errors()


def test_an_answer_that_arrives_before_the_cell_waits_is_not_lost(
    attached: Attached, tmp_path: Path
) -> None:
    """The click comes while the cell still computes or awaits something else."""
    page, clicked = attached.page, tmp_path / "clicked"
    page.must_run(f"import pathlib\nclicked = pathlib.Path({str(clicked)!r}).exists")
    computing = (
        "future = on_private_loop()\nwhile not clicked(): time.sleep(0.01)\ntime.sleep(0.05)"
    )
    awaits = "while not clicked(): await asyncio.sleep(0.01)\nawait asyncio.sleep(0.05)"
    awaiting = f"future = on_private_loop()\n{awaits}"
    held = f"with kernel.comms_pass():\n{textwrap.indent(awaiting, '    ')}"
    for begin in (computing, held, *([] if attached.stuck else [awaiting])):
        for end in ("kernel.pump(future)", "await kernel.wait(future, on_kernel_interrupt=None)"):
            clicked.unlink(missing_ok=True)
            request = attached.started(Form("early", f"{begin}\nprint('got', {end})", blocks=True))
            page.answer(attached.comm_id, {"value": "early"})
            clicked.touch()  # the message is on loopback and arrives in a moment
            assert page.finish(request).stdout.endswith("got early\n"), (begin, end, page.errors())


def test_a_handler_that_raises_does_not_end_the_waiting_cell(attached: Attached) -> None:
    """The error of a widget is logged, and the answer still arrives."""
    page = attached.page
    for form in (AWAIT, BLOCK):
        request = attached.started(form)
        for bad in (
            page.message(attached.comm_id, {"method": "update", "state": None}),
            page.comm({}),
        ):
            assert page.until_states(bad, 2) == ["busy", "idle"]
        page.answer(attached.comm_id, {"value": "still"})
        assert page.finish(request).stdout.endswith("got still\n"), page.errors()


@BLOCKING
def test_output_of_a_handler_shows_in_the_waiting_cell(attached: Attached, form: Form) -> None:
    """A person's ``on_click`` may print; on a subshell's thread, no cell shows the output."""
    page = attached.page
    request = attached.started(form)
    page.answer(attached.comm_id, {"value": "x"})
    stdout = page.finish(request).stdout
    assert stdout.startswith("waiting")  # print writes its line end separately
    assert stdout.endswith("got x\n")
    assert "handled x\n" in stdout or attached.elsewhere


def test_a_cell_knows_its_id_its_execution_and_whether_a_person_is_present(
    attached: Attached,
) -> None:
    """These facts distinguish a re-run cell from another cell, and a person from nbclient."""
    page = attached.page
    code = "print(kernel.cell_id(), kernel.attended(), kernel.in_kernel(), kernel.execution_key())"
    first = page.run(code, cell_id="one").stdout.split()
    again = page.run(code, cell_id="one").stdout.split()
    nobody = page.run(code, cell_id="two", allow_stdin=False).stdout.split()
    assert first[:3] == again[:3] == ["one", "True", "True"]
    assert nobody[:3] == ["two", "False", "True"]
    assert len({first[3], again[3], nobody[3]}) == 3
    twice = "print(kernel.execution_key(), kernel.execution_key())"
    assert len(set(page.must_run(twice).split())) == 1


def test_a_kernel_without_a_needed_private_name_says_which() -> None:
    """A future ipykernel may rename a needed attribute; the error names it and says what to do."""
    with front_end(NEWEST) as page:
        attached = Attached(page)
        page.must_run(RENAMED)
        outcome = page.run(BLOCK.cell)
        assert outcome.error == "UsageError"
        assert "no SocketPair.to_stream" in page.errors()
        request = attached.started(AWAIT)
        page.answer(attached.comm_id, {"value": "natively"})
        assert page.finish(request).stdout.endswith("got natively\n"), page.errors()


@pytest.mark.variant
@pytest.mark.parametrize("subshell", [False, True], ids=["main", "subshell"])
@pytest.mark.parametrize("version", ["7.0.1", "7.3.0"])
def test_a_request_that_arrives_while_a_reply_is_sent_is_not_missed(
    version: str, subshell: bool
) -> None:
    """Without the fix, these kernels miss one request in a few hundred, and then all later ones."""
    with front_end(version, subshell=subshell, mended=False) as page:
        page.must_run("from nbagent.notebook import kernel; kernel.in_kernel()")
        for each in range(300):
            assert page.is_heard(after=each % 40 * 0.0001), f"round {each}"
