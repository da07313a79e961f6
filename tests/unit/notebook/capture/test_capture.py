"""Prints, logs, warnings, displays and plots of a tool go to its own call; other output does not."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import io
import logging
import multiprocessing.pool
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
import tqdm.asyncio
import tqdm.notebook
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import clear_output, display, update_display
from PIL import Image
from traitlets.config import Config

from nbagent.core.hooks import hooks
from nbagent.core.tools.call_output import (
    CallOutput,
    OutputDelta,
    Printed,
    Progressed,
    current_call,
)
from nbagent.notebook.capture import capture

Body = Callable[[], object]


class Cell:
    """A notebook's cell, which collects output that goes to no call."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.shown: list[dict[str, Any]] = []
        self.cleared = 0
        self.out = io.StringIO()
        self.err = io.StringIO()

    def publish(self, data: dict[str, Any], metadata: object = None, **kwargs: object) -> None:
        self.shown.append(data)

    def clear_output(self, wait: bool = False) -> None:
        self.cleared += 1

    def is_untouched(self) -> bool:
        """Whether no output reached the cell."""
        return not (self.shown or self.cleared or self.out.getvalue() or self.err.getvalue())


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    """An IPython without a kernel; figures are drawn without a window."""
    usual = mpl.get_backend()
    mpl.use("agg")
    config = Config()
    config.HistoryManager.enabled = False
    config.ProfileDir.location = str(tmp_path_factory.mktemp("ipython"))
    yield InteractiveShell.instance(config=config)
    InteractiveShell.clear_instance()
    mpl.use(usual)


@pytest.fixture
def cell(shell: InteractiveShell) -> Cell:
    """A cell to show things in."""
    return Cell(shell)


def in_cell(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test's body in its ``cell``, with capture installed.

    Not a fixture: pytest replaces ``sys.stdout`` between a test's setup and its body.
    """

    @functools.wraps(test)
    def run(*, cell: Cell, **given: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cell.shell.display_pub, "publish", cell.publish)
            patch.setattr(cell.shell.display_pub, "clear_output", cell.clear_output)
            patch.setattr(sys, "stdout", cell.out)
            patch.setattr(sys, "stderr", cell.err)
            capture.install()
            try:
                test(cell=cell, **given)
            finally:
                capture.uninstall()
                plt.close("all")

    return run


class Call(CallOutput):
    """A call that records its output."""

    def __init__(self) -> None:
        self.told: list[OutputDelta] = []
        super().__init__("call-1", self.told.append)

    @contextmanager
    def body(self) -> Iterator[None]:
        """Surround a tool's body as the engine does."""
        token = current_call.set(self)
        try:
            yield
        finally:
            current_call.reset(token)
            hooks.call_ended(self)
            self.close()

    def run(self, body: Body) -> Call:
        """Run a body as that of a tool."""
        with self.body():
            body()
        return self

    def streams(self) -> list[tuple[str, str]]:
        """The printed texts and their streams."""
        return [(each.stream, each.text) for each in self.told if isinstance(each, Printed)]

    def reports(self) -> list[tuple[float | None, str]]:
        """The progress reports."""
        return [(each.fraction, each.text) for each in self.told if isinstance(each, Progressed)]


def in_thread(body: Body) -> None:
    """As the engine runs a sync tool."""
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(body,))
    thread.start()
    thread.join()


def in_task(body: Body) -> None:
    """As the engine runs an async tool."""

    async def tool() -> None:
        await asyncio.sleep(0)
        body()

    async def main() -> None:
        await asyncio.create_task(tool())

    asyncio.run(main())


def in_place(body: Body) -> None:
    """As the engine runs a tool that must stay in its thread."""
    body()


def warn() -> None:
    usual = warnings.filters[:]
    warnings.simplefilter("always")
    try:
        warnings.warn("careful", UserWarning, stacklevel=1)
    finally:
        warnings.filters[:] = usual


def draw() -> None:
    plt.figure().gca().plot([1, 2])


SHOWS: dict[str, tuple[Body, list[tuple[str, str]], list[set[str]]]] = {
    "print": (lambda: print("a", "b"), [("stdout", "a b"), ("stdout", "\n")], []),
    "stderr": (lambda: sys.stderr.write("oh\n"), [("stderr", "oh\n")], []),
    "writelines": (lambda: sys.stdout.writelines(["a\n"]), [("stdout", "a\n")], []),
    "log": (
        lambda: logging.getLogger("lib").warning("%d rows", 3),
        [("log", "WARNING lib: 3 rows\n")],
        [],
    ),
    "warn": (warn, [("stderr", "UserWarning: careful\n")], []),
    "display": (lambda: display(pd.DataFrame({"a": [1]})), [], [{"text/plain", "text/html"}]),
    "image": (
        lambda: display(Image.new("RGB", (2, 2))),
        [],
        [{"text/plain", "image/png", "image/jpeg"}],
    ),
    "clear": (clear_output, [], []),
    "figure left open": (draw, [], [{"image/png", "text/plain"}]),
}


@pytest.mark.parametrize("run", [in_place, in_thread, in_task], ids=lambda run: run.__name__)
@pytest.mark.parametrize("name", SHOWS)
@in_cell
def test_output_of_a_tool_goes_only_to_its_call(
    cell: Cell, name: str, run: Callable[[Body], None]
) -> None:
    """However the engine runs the body, none of its output reaches the cell."""
    body, streams, mimes = SHOWS[name]
    call = Call().run(lambda: run(body))
    assert [(stream, text) for stream, text in call.streams() if text] == merged(streams, call)
    assert [set(bundle) for bundle in call.displays] == mimes
    assert cell.is_untouched()


def merged(expected: list[tuple[str, str]], call: Call) -> list[tuple[str, str]]:
    """The expected prints; a stream may get one line in several pieces."""
    told = "".join(text for _, text in call.streams())
    assert told == "".join(text for _, text in expected)
    return [(expected[0][0], text) for _, text in call.streams() if text] if expected else []


@pytest.mark.parametrize("name", SHOWS)
@in_cell
def test_output_outside_of_a_call_goes_to_its_usual_place(cell: Cell, name: str) -> None:
    """The cell gets its output as before; an ended call captures nothing."""
    body, _, mimes = SHOWS[name]
    over = Call()
    over.close()
    token = current_call.set(over)
    with warnings.catch_warnings(record=True) as warned:
        body()
    current_call.reset(token)
    assert over.told == []
    assert len(plt.get_fignums()) == (name == "figure left open")
    assert len(warned) == (name == "warn")
    assert cell.is_untouched() == (name in {"figure left open", "log", "warn"})
    assert (cell.cleared == 1) == (name == "clear")
    assert len(cell.shown) == (len(mimes) if name in {"display", "image"} else 0)


def test_installing_twice_is_the_same_as_once_and_uninstalling_leaves_no_trace(
    shell: InteractiveShell,
) -> None:
    """A notebook that stops using nbagent is as before."""

    def state() -> list[object]:
        figures, bars = plt._pylab_helpers.Gcf.figs, tqdm.std.tqdm.__init__
        patched = (warnings.showwarning, logging.Logger.callHandlers, list(sys.meta_path))
        publishers = (shell.display_pub.publish, shell.display_pub.clear_output)
        notebook_bar = tqdm.notebook.tqdm_notebook.__new__
        streams = (sys.stdout, sys.stderr, hooks.call_ended)
        return [id(figures), bars, notebook_bar, *patched, *publishers, *streams]

    before = state()
    capture.install()
    once = state()
    assert once != before
    capture.install()
    assert state() == once
    capture.uninstall()
    capture.uninstall()
    assert state() == before


@in_cell
def test_a_stream_that_was_wrapped_meanwhile_still_works(cell: Cell) -> None:
    """Uninstalling under ``%%capture`` or ``redirect_stdout`` must not break printing."""
    proxy = sys.stdout
    capture.uninstall()
    Call().run(lambda: print("to the cell", file=proxy))
    assert cell.out.getvalue() == "to the cell\n"


@in_cell
def test_logging_can_still_be_configured_after_installing(cell: Cell) -> None:
    """``logging.basicConfig`` does nothing if the root logger already has a handler."""
    before = list(logging.getLogger().handlers)
    capture.uninstall()
    capture.install()
    assert logging.getLogger().handlers == before


@in_cell
def test_a_record_is_not_doubled_by_a_console_handler_but_reaches_the_others(cell: Cell) -> None:
    """With ``basicConfig`` on, a record is in the tool's row once, and also in a log file."""
    logger = logging.getLogger("nbagent-test-tool")
    file = io.StringIO()
    logger.addHandler(logging.StreamHandler(sys.stderr))
    logger.addHandler(logging.StreamHandler(cell.err))
    logger.addHandler(logging.StreamHandler(file))
    call = Call().run(lambda: logger.error("broken"))
    assert call.printed == "ERROR nbagent-test-tool: broken\n"
    assert cell.is_untouched()
    assert file.getvalue() == "broken\n"


@in_cell
def test_a_log_call_with_wrong_arguments_does_not_fail_the_tool(cell: Cell) -> None:
    """Logging reports wrong arguments on stderr, which is the call's."""
    logger = logging.getLogger("nbagent-test-tool.alone")  # pytest's own handler raises
    logger.propagate = False
    call = Call().run(lambda: logger.error("%d", "no number"))
    assert "--- Logging error ---" in call.printed
    assert cell.is_untouched()


@in_cell
def test_output_of_concurrent_calls_does_not_mix(cell: Cell) -> None:
    """Prints, displays and figures of parallel tools are each in their own row."""
    both = threading.Barrier(2)
    calls = [Call(), Call()]

    def tool(width: int) -> None:
        both.wait()
        figure = plt.figure(figsize=(width, 1))
        print(f"tool {width}")
        both.wait()
        assert plt.gcf() is figure
        plt.close("all")
        both.wait()
        plt.figure(figsize=(width, 1)).gca()

    threads = [
        threading.Thread(target=call.run, args=(lambda width=width: tool(width),))
        for width, call in enumerate(calls, start=1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [call.printed for call in calls] == ["tool 1\n", "tool 2\n"]
    images = [[bundle["image/png"] for bundle in call.displays] for call in calls]
    assert [len(each) for each in images] == [1, 1]
    assert images[0] != images[1]
    assert cell.is_untouched()


@in_cell
def test_a_tool_neither_captures_nor_changes_the_figures_of_the_person(cell: Cell) -> None:
    """Figures that were open stay open and current; a tool draws on its own figures."""
    mine = plt.figure()
    axes = mine.gca()

    def tool() -> None:
        plt.plot([1, 2])
        plt.close("all")

    call = Call().run(tool)
    assert call.displays == []
    assert plt.gcf() is mine
    assert not axes.lines


@in_cell
def test_a_figure_that_cannot_be_drawn_is_reported_and_closed(cell: Cell) -> None:
    """Broken math text in a title is reported in the call, and the run continues."""

    def tool() -> None:
        plt.gca().set_title("$\\broken{$")

    call = Call().run(tool)
    assert call.displays == []
    assert "showing a Figure failed" in call.printed
    assert plt.get_fignums() == []


@in_cell
def test_an_update_goes_to_the_place_of_its_display(cell: Cell) -> None:
    """A handle from a cell updates the cell; one from the call replaces the call's display."""
    handle = display({"old": 1}, display_id=True)

    def tool() -> None:
        handle.update({"new": 1})
        mine = display({"old": 2}, display_id=True)
        update_display({"new": 2}, display_id=mine.display_id)

    call = Call().run(tool)
    assert [each["text/plain"] for each in cell.shown] == ["{'old': 1}", "{'new': 1}"]
    assert [each["text/plain"] for each in call.displays] == ["{'new': 2}"]


def plain_loop() -> None:
    for _ in tqdm.tqdm(range(4), desc="rows", mininterval=0):
        pass


def notebook_loop() -> None:
    for _ in tqdm.notebook.tqdm(range(4), desc="rows", mininterval=0, display=True):
        pass


def nested_loops() -> None:
    with tqdm.tqdm(total=4, desc="rows", mininterval=0) as outer:
        for _ in range(4):
            outer.update()
            for _ in tqdm.tqdm(range(2), desc="cells", leave=False, mininterval=0):
                pass


def from_a_thread_of_the_tool() -> None:
    with tqdm.tqdm(total=4, desc="rows", mininterval=0) as bar:
        thread = threading.Thread(target=bar.update, args=(4,))
        thread.start()
        thread.join()


@pytest.mark.parametrize(
    "loop", [plain_loop, notebook_loop, nested_loops, from_a_thread_of_the_tool]
)
@in_cell
def test_a_progress_bar_in_a_tool_is_the_progress_of_its_call(cell: Cell, loop: Body) -> None:
    """Every kind of tqdm reports fraction and text, and shows neither text nor widget."""
    call = Call().run(loop)
    rows = [(fraction, text) for fraction, text in call.reports() if text.startswith("rows")]
    assert rows[0][0] == 0.0
    assert rows[-1][0] == 1.0
    assert rows[-1][1].startswith("rows: 4/4 [")
    assert call.printed == ""
    assert call.displays == []
    assert cell.is_untouched()


@in_cell
def test_a_progress_bar_outside_of_a_call_is_unchanged(cell: Cell) -> None:
    """The person's own bars stay widgets, and plain ones stay on stderr."""
    plain_loop()
    notebook_loop()
    assert "rows: 100%|" in cell.err.getvalue()
    assert len(cell.shown) == 1


@in_cell
def test_a_progress_bar_that_writes_to_a_file_is_unchanged(cell: Cell) -> None:
    """A bar with a ``file`` argument writes to that file."""
    file = io.StringIO()
    call = Call().run(lambda: list(tqdm.tqdm(range(2), file=file)))
    assert call.told == []
    assert "100%|" in file.getvalue()


@pytest.mark.parametrize(
    ("writes", "printed", "progress"),
    [
        (["\r 10%", "\r 20%", "\n"], "", [(0.1, "10%"), (0.2, "20%")]),
        (["load 10%\r", "load 20%\r", "done\n"], "done\n", [(0.1, "load 10%"), (0.2, "load 20%")]),
        (["\rstep 1", "\rstep 2\n"], "step 2\n", [(None, "step 1"), (None, "step 2")]),
        (["before\n\r50%"], "before\n", [(0.5, "50%")]),
        (["\r50%", "Traceback\n"], "Traceback\n", [(0.5, "50%")]),
        (["\r\x1b[2K 5.5 % of all\n"], "", [(0.055, "5.5 % of all")]),
        (["windows\r\n"], "windows\n", []),
        (["\r", "\r\n"], "", []),
        (["100% sure\n"], "100% sure\n", []),
    ],
)
@in_cell
def test_a_line_that_redraws_itself_is_progress(
    cell: Cell, writes: list[str], printed: str, progress: list[tuple[float | None, str]]
) -> None:
    """Carriage returns redraw a line; text that a terminal would leave is kept as print."""

    def tool() -> None:
        for text in writes:
            sys.stderr.write(text)

    call = Call().run(tool)
    assert call.printed == printed
    assert call.reports() == progress


@given(pieces=st.lists(st.text(alphabet="ab%|1 \n"), max_size=8))
@settings(max_examples=100)
def test_text_without_carriage_returns_is_unchanged(pieces: list[str]) -> None:
    """However the text is cut into writes, and with any percent signs."""
    stream = capture._CapturedStream("stdout", io.StringIO())
    call = Call()
    for piece in pieces:
        stream._take(call, piece)
    assert call.printed == "".join(pieces)
    assert call.reports() == []


class Html:
    def __repr__(self) -> str:
        return "<Html at 0x7fdeadbeef>"

    def _repr_html_(self) -> str:
        return "<b>x</b>"


class Bundled:
    def __repr__(self) -> str:
        return "Bundled()"

    def _repr_mimebundle_(self, include: object, exclude: object) -> tuple[Any, Any]:
        return {"text/html": "whole", "text/plain": "other"}, {}

    def _repr_html_(self) -> str:
        return "part"


class Broken:
    def _repr_html_(self) -> str:
        raise ValueError("no html")


class HalfBroken(Broken):
    def __repr__(self) -> str:
        raise ValueError("no repr")

    def _repr_markdown_(self) -> str:
        return "*x*"


class Claims:
    """A proxy that claims to have every attribute."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: "claimed"


class SelfDisplaying:
    def _ipython_display_(self) -> None:
        print("displayed by itself")


@pytest.mark.parametrize(
    ("value", "bundle"),
    [
        (None, None),
        ("text", None),
        (1.5, None),
        ({"a": [1]}, None),
        (object(), None),
        (Html, None),
        (Html(), {"text/html": "<b>x</b>"}),
        (Bundled(), {"text/html": "whole", "text/plain": "Bundled()"}),
        (HalfBroken(), {"text/markdown": "*x*"}),
        (Broken(), None),
        (Claims(), None),
        (SelfDisplaying(), None),
    ],
    ids=lambda value: type(value).__name__,
)
@in_cell
def test_a_value_is_formatted_as_in_ipython_and_errors_stay_out_of_the_cell(
    cell: Cell, value: object, bundle: dict[str, str] | None
) -> None:
    """The formats that work, or None without any; nothing is printed or raised."""
    assert capture.present(value) == bundle
    assert cell.shown == []
    assert cell.out.getvalue() == ""


@in_cell
def test_a_repr_that_fails_is_logged(cell: Cell, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the author of the repr would not learn of the error."""
    assert capture.present(Broken()) is None
    assert [record.getMessage() for record in caplog.records] == ["showing a Broken failed"]


@in_cell
def test_a_formatter_registered_for_a_type_wins(cell: Cell, shell: InteractiveShell) -> None:
    """A person can override a library's own representation with ``for_type``."""
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(Bundled, lambda value: "registered")
    try:
        bundle = capture.present(Bundled())
    finally:
        html.pop(Bundled)
    assert bundle == {"text/html": "registered", "text/plain": "Bundled()"}


@pytest.mark.parametrize(
    ("make", "mime"),
    [
        (lambda: pd.DataFrame({"a": [1]}), "text/html"),
        (lambda: pd.Series([1], name="a"), "text/html"),
        (lambda: pd.Series([1]).rename(("a", "b")), "text/html"),
        (lambda: plt.gca().figure, "image/png"),
        (lambda: Image.new("RGB", (2, 2)), "image/png"),
    ],
)
@in_cell
def test_rich_results_keep_their_formats(cell: Cell, make: Callable[[], object], mime: str) -> None:
    """Tables, figures and images; presenting a value twice gives equal bundles."""
    value = make()
    bundle = capture.present(value)
    assert bundle is not None
    assert isinstance(bundle[mime], str)
    assert capture.present(value) == bundle


SCRIPT = "import sys; print('out'); print('err', file=sys.stderr); print('déjà')"
COMMAND = [sys.executable, "-X", "utf8", "-c", SCRIPT]


def own_thread() -> None:
    thread = threading.Thread(target=print, args=("said",))
    thread.start()
    thread.join()


class Loud(threading.Thread):
    def run(self) -> None:
        own_thread()


def thread_of_a_thread() -> None:
    thread = Loud()
    thread.start()
    thread.join()


def own_pool() -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(print, ["said"]))


def pool_of_threads() -> None:
    with multiprocessing.pool.ThreadPool(2) as pool:
        pool.map(print, ["said"])


async def in_executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, print, "said")


STARTS: dict[str, Body] = {
    "a thread": own_thread,
    "a thread of a thread": thread_of_a_thread,
    "a pool": own_pool,
    "a pool of multiprocessing": pool_of_threads,
    "an executor": lambda: asyncio.run(in_executor()),
}


@pytest.mark.parametrize("name", STARTS)
@in_cell
def test_c777_a_thread_that_a_tool_starts_belongs_to_its_call(cell: Cell, name: str) -> None:
    """What it prints is in the call; outside of a call, and once uninstalled, all is as before."""
    call = Call().run(STARTS[name])
    assert "".join(text for _, text in call.streams()) == "said\n"
    assert cell.is_untouched()
    STARTS[name]()
    assert cell.out.getvalue() == "said\n"


@in_cell
def test_c777_a_thread_of_nbagent_belongs_to_no_call(cell: Cell) -> None:
    """It outlives the call in which it happens to start, such as the thread that writes to a store."""

    def body() -> None:
        thread = threading.Thread(target=print, args=("said",), name="nbagent-write")
        thread.start()
        thread.join()

    call = Call().run(body)
    assert ([*call.streams()], cell.out.getvalue()) == ([], "said\n")


@in_cell
def test_c777_work_of_a_shared_pool_belongs_to_the_call_that_submitted_it(cell: Cell) -> None:
    """Whichever call started the pool's threads."""
    calls = [Call(), Call()]
    with ThreadPoolExecutor(1) as pool:
        for number, call in enumerate(calls):
            call.run(lambda number=number: pool.submit(print, number).result())
        pool.submit(print, "outside").result()
    told = ["".join(text for _, text in call.streams()) for call in calls]
    assert (told, cell.out.getvalue()) == (["0\n", "1\n"], "outside\n")


PROCESSES: dict[str, tuple[Body, set[str]]] = {
    "run": (lambda: subprocess.run(COMMAND, check=True), {"out", "err", "déjà"}),
    "call": (lambda: subprocess.check_call(COMMAND), {"out", "err", "déjà"}),
    "by position": (
        lambda: subprocess.Popen(COMMAND, -1, None, None).wait(),
        {"out", "err", "déjà"},
    ),
    "errors elsewhere": (
        lambda: subprocess.run(COMMAND, check=True, stderr=subprocess.DEVNULL),
        {"out", "déjà"},
    ),
    "errors with it": (
        lambda: subprocess.run(COMMAND, check=True, stderr=subprocess.STDOUT),
        {"out", "err", "déjà"},
    ),
    "its own pipe": (lambda: subprocess.check_output(COMMAND), {"err"}),
}


@pytest.mark.parametrize("name", PROCESSES)
@in_cell
def test_c777_a_process_that_a_tool_starts_writes_to_its_call(cell: Cell, name: str) -> None:
    """The streams that it inherits: complete once it was waited for, and without open files."""
    body, lines = PROCESSES[name]
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    call = Call().run(body)
    told = dict.fromkeys(("stdout", "stderr"), "")
    for stream, text in call.streams():
        told[stream] += text
    assert {*told["stdout"].split(), *told["stderr"].split()} == lines
    assert cell.is_untouched()
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == before


@in_cell
def test_c777_a_process_that_cannot_start_or_outlives_its_call_is_as_without_capture(
    cell: Cell,
) -> None:
    """The error is Python's own; late output goes to the usual place, and so does that of other code."""
    with pytest.raises(FileNotFoundError):
        Call().run(lambda: subprocess.run(["no-such-program"], check=True))
    left: list[subprocess.Popen[bytes]] = []
    script = "import sys; sys.stdin.read(); print('late')"
    late = [sys.executable, "-c", script]
    call = Call().run(lambda: left.append(subprocess.Popen(late, stdin=subprocess.PIPE)))
    (process,) = left
    process.communicate(b"")
    assert (call.streams(), cell.out.getvalue()) == ([], "late\n")
    assert process.stdout is None
