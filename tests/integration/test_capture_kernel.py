"""Capture in a real kernel: no output of a tool reaches a cell, in any order of imports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.kernels import FrontEnd, front_end

SETUP = """
import contextvars, json, sys, threading, time
from nbagent.core.hooks import hooks
from nbagent.core.tools.call_output import CallOutput, Progressed, current_call
from nbagent.notebook.capture import capture

capture.install()
assert "matplotlib" not in sys.modules and "tqdm" not in sys.modules

class Call(threading.Thread):
    '''A tool's body in a thread, as the engine runs it.'''
    def __init__(self, body):
        self.told = []
        self.output = CallOutput("call-1", self.told.append)
        context = contextvars.copy_context()
        super().__init__(target=lambda: context.run(self.body, body), daemon=True)
        self.start()
    def body(self, body):
        current_call.set(self.output)
        try:
            body()
        finally:
            current_call.set(None)
            hooks.call_ended(self.output)
            self.output.close()
    def tell(self):
        self.join()
        bars = [each.fraction for each in self.told if isinstance(each, Progressed)]
        displays = [sorted(each) for each in self.output.displays]
        with open(told, "w") as file:
            json.dump([self.output.printed, displays, bars], file)
"""


@pytest.fixture(scope="module")
def page() -> Iterator[FrontEnd]:
    """A kernel without capture."""
    with front_end() as page:
        yield page


class Tools:
    """Runs tool bodies in the kernel; their output is returned through a file, not the cell."""

    def __init__(self, page: FrontEnd, path: Any) -> None:
        self.page = page
        self.path = path
        page.must_run(f"told = {str(path)!r}")

    def run(self, body: str, during: str = "") -> tuple[str, list[list[str]], list[float]]:
        """Run a body; the cell that starts it and the cell that waits for it must stay empty."""
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        self.cell(f"def tool():\n{lines}\ncall = Call(tool)\n")
        if during:
            self.page.must_run(during)
        self.cell("call.tell()")
        printed, displays, bars = json.loads(self.path.read_text())
        return printed, displays, bars

    def cell(self, code: str) -> None:
        """Run a cell that must show nothing."""
        outcome = self.page.run(code)
        assert outcome.status == "ok", self.page.errors()
        assert (outcome.stdout, outcome.displays) == ("", [])


@pytest.fixture(scope="module")
def tools(page: FrontEnd, tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """A kernel with capture installed before any of the libraries is imported."""
    page.must_run(SETUP)
    return Tools(page, tmp_path_factory.mktemp("told") / "told.json")


def test_a_tool_can_be_the_first_to_import_tqdm(tools: Tools) -> None:
    """``tqdm.auto`` makes a widget in a kernel; in a tool it becomes the call's progress."""
    printed, displays, bars = tools.run(
        "from tqdm.auto import tqdm\nfor _ in tqdm(range(3), mininterval=0): pass"
    )
    assert (printed, displays, bars[0], bars[-1]) == ("", [], 0.0, 1.0)


def test_progress_bars_outside_of_tools_stay_widgets(tools: Tools) -> None:
    """Outside of a call, ``tqdm.auto`` is unchanged."""
    outcome = tools.page.run("from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass")
    assert "application/vnd.jupyter.widget-view+json" in outcome.displays[0]


def test_a_tool_can_be_the_first_to_import_pyplot(tools: Tools) -> None:
    """Shown or left open, each figure is one image in the call, and none in a cell."""
    _, displays, _ = tools.run(
        "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\nplt.figure()\nplt.plot([2])"
    )
    assert displays == [["image/png", "text/plain"]] * 2


def test_the_end_of_a_cell_does_not_take_the_figures_of_a_running_tool(tools: Tools) -> None:
    """The inline backend shows and closes every open figure at the end of a cell."""
    tools.page.must_run("drawn, stop = threading.Event(), threading.Event()")
    tools.page.seen.clear()
    _, displays, _ = tools.run(
        "import matplotlib.pyplot as plt\nplt.plot([1])\ndrawn.set()\nstop.wait(20)",
        during="import matplotlib.pyplot as plt\nplt.plot([2])\ndrawn.wait(20)\nstop.set();",
    )
    assert displays == [["image/png", "text/plain"]]
    shown = [each["content"] for each in tools.page.seen if each["msg_type"] == "display_data"]
    assert [sorted(each["data"]) for each in shown] == [["image/png", "text/plain"]]


def test_prints_records_warnings_and_displays_of_a_tool_stay_out_of_the_cell(tools: Tools) -> None:
    """The kernel's streams and publisher receive none of this output."""
    printed, displays, _ = tools.run(
        "import logging, warnings\nfrom IPython.display import HTML, display, clear_output\n"
        "print('printed')\nlogging.warning('logged')\nwarnings.warn('warned')\n"
        "display(HTML('<b>x</b>'))\nclear_output()"
    )
    assert printed == "printed\nWARNING root: logged\nUserWarning: warned\n"
    assert displays == [["text/html", "text/plain"]]


def test_output_of_the_cell_itself_stays_in_the_cell(tools: Tools) -> None:
    """Prints, warnings, displays, figures and the last line are shown as usual."""
    tools.page.seen.clear()
    outcome = tools.page.run(
        "import warnings, matplotlib.pyplot as plt\nfrom IPython.display import HTML, display\n"
        "print('printed')\nwarnings.warn('warned')\ndisplay(HTML('<b>x</b>'))\nplt.plot([1]);\n'last'"
    )
    assert outcome.stdout == "printed\n"
    assert "UserWarning: warned" in tools.page.printed()
    kinds = [sorted(each) for each in outcome.displays]
    assert kinds == [["text/html", "text/plain"], ["text/plain"], ["image/png", "text/plain"]]
