"""A person's actions in a notebook in a browser, as methods that wait for their effects."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    WebSocket,
    expect,
)

from tests.browser.server import JupyterServer

SHOTS = Path(__file__).parent / "shots"
WAIT_MS = 60_000

KERNEL_READY = """() => {
  const kernel = window.jupyterapp?.shell.currentWidget?.context?.sessionContext?.session?.kernel;
  return kernel?.connectionStatus === "connected" && kernel.status === "idle";
}"""
KERNEL_CONNECTED = """() => {
  const kernel = window.jupyterapp?.shell.currentWidget?.context?.sessionContext?.session?.kernel;
  return kernel?.connectionStatus === "connected";
}"""
SHOWN = """() => !!window.jupyterapp?.shell.currentWidget?.context?.isReady
  && !document.querySelector(".jp-FileBrowser.jp-mod-restoring")"""  # JupyterLab opens what its address says last
ALL_CELLS_RAN = """() => [...window.jupyterapp.shell.currentWidget.content.widgets].every(
  cell => cell.model.type !== "code" || !cell.model.sharedModel.source.trim()
    || (cell.model.executionCount !== null && cell.prompt !== "*"))"""
COMMAND = """async ([name, args]) => {
  await window.jupyterapp.commands.execute(name, args); // its result is not sent: it may hold all of JupyterLab
}"""
DIALOG = ".jp-Dialog"
REPLACED = "Element is not attached to the DOM"
LIGHT = "body[data-jp-theme-light=true]"
PUT_AWAY = """async () => {
  const { shell } = window.jupyterapp;
  if (document.querySelector(".jp-Dialog")) return false;
  document.querySelectorAll("style[data-of-the-test]").forEach(style => style.remove());
  shell.expandLeft();
  for (const widget of [...shell.widgets("main")]) {
    try {
      await widget.context?.sessionContext.shutdown();
    } catch {
      return false; // its kernel has gone by itself
    }
    widget.dispose();
  }
  delete globalThis[Symbol.for("nbagent.loaded")]; // the code of cards, which the next notebook brings again
  delete globalThis[Symbol.for("nbagent.waiting")];
  return true;
}"""
VIEWPORT = {"width": 1100, "height": 900}

JUPYTERS_OWN_ERRORS = (
    "Cannot read properties of undefined (reading 'schema')",  # Notebook 7.6, at every start
    "Command 'filebrowser:open-path' not registered.",  # Notebook 7.6, at every start
    "[anywidget] Failed to initialize model.",  # a slow page; cards receive their messages all the same
)
SPLASH = (
    "Failed to execute 'removeChild' on 'Node': The node to be removed is not a child of this node."
)
"""JupyterLab 4.6 removes its splash twice after a fast start; the script that threw identifies the error."""


LAST_WORDS = "Comm not found for comm id "
"""JupyterLab drops the comms of a kernel that it restarts, and logs this for that kernel's late messages."""


class App(StrEnum):
    """The two front ends."""

    LAB = "lab"
    NB7 = "nb7"

    def path(self, name: str) -> str:
        """The notebook's path on the server; in JupyterLab, without the tabs of an earlier test."""
        return f"lab/tree/{name}?reset" if self is App.LAB else f"notebooks/{name}"


APPS = [App.LAB, pytest.param(App.NB7, marks=pytest.mark.variant)]
"""JupyterLab, and Notebook 7, which is made of its parts."""


class NotebookPage:
    """One browser tab, and the notebook that is open in it."""

    def __init__(self, context: BrowserContext, server: JupyterServer) -> None:
        self.app = App.LAB
        self.errors: list[str] = []
        """Errors that the page logged or threw, as text, without Jupyter's own errors."""
        self.received = 0
        """Bytes that kernels have sent the page."""
        self.waits = False
        """Whether JupyterLab is loaded in the tab with nothing open."""
        self._server = server
        self._plain = True
        self._path = Path()
        """The open notebook on disk."""
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self._sockets: list[WebSocket] = []
        self.page.on("websocket", self._note_socket)
        self.page.on("console", self._note_console)
        self.page.on("pageerror", self._note_thrown)

    def open(self, name: str, app: App = App.LAB, *, kernel: bool = True) -> NotebookPage:
        """Open the notebook; with ``kernel=False`` as on a machine that has no kernels.

        Reuses JupyterLab if the tab has loaded it, because starting a front end takes longest.
        """
        self.app, self.received, self._plain = app, 0, kernel
        self._path = self._server.root / name
        self.errors = []
        self.page.bring_to_front()  # a background tab draws one frame a second
        self.page.set_viewport_size(VIEWPORT)
        if not kernel:
            self.page.route("**/api/kernelspecs*", no_kernels)
        if self.waits and kernel and app is App.LAB and not self.page.locator(DIALOG).count():
            self.command("docmanager:open", path=name)
        else:
            self.page.goto(f"{self._server.url}{app.path(name)}")
        self.waits = False
        self._wait_until_shown()
        if kernel:
            self.wait_for_kernel()
        else:
            self._decline_kernel()
        return self

    def put_away(self) -> None:
        """Close the notebook and its kernel. JupyterLab stays loaded; otherwise the tab shows a small page."""
        self.page.set_viewport_size(VIEWPORT)
        self.waits = self.app is App.LAB and self._plain and bool(self.page.evaluate(PUT_AWAY))
        if self.waits and not self.page.locator(LIGHT).count():
            self.light()
        if not self.waits:
            self.page.unroute_all()
            self.page.goto(f"{self._server.url}api/status")
            self.page.evaluate("() => sessionStorage.clear()")

    def reload(self) -> None:
        """Reload the page; the kernel continues."""
        self.page.bring_to_front()
        self.page.reload()
        self._wait_until_shown()
        self.wait_for_kernel()

    def wait_for_kernel(self) -> None:
        """Wait until the kernel is connected and idle."""
        self.page.wait_for_function(KERNEL_READY)

    def wait_for_connection(self) -> None:
        """Wait until the kernel is connected; the kernel may be busy."""
        self.page.wait_for_function(KERNEL_CONNECTED)

    def run_all(self) -> None:
        """Start every cell; returns at once, because cells may wait for a form."""
        self.page.evaluate(
            "() => void window.jupyterapp.commands.execute('notebook:run-all-cells')"
        )

    def run_cell(self, index: int) -> None:
        """Start one cell; returns at once."""
        self.page.bring_to_front()
        self.page.evaluate(
            """index => {
              window.jupyterapp.shell.currentWidget.content.activeCellIndex = index;
              window.jupyterapp.commands.execute("notebook:run-cell");
            }""",
            index,
        )

    def wait_until_all_ran(self) -> None:
        """Wait until no cell is queued or running."""
        self.page.wait_for_function(ALL_CELLS_RAN)

    def command(self, name: str, **args: str) -> None:
        """Execute one of Jupyter's commands, and wait for its end."""
        self.page.evaluate(COMMAND, [name, args])

    def save(self, *texts: str) -> None:
        """Save the notebook until the outputs on disk contain these texts.

        The kernel sends the HTML to save a moment after the page shows a change.
        """
        end = time.monotonic() + WAIT_MS / 1000
        while True:
            self.command("docmanager:save")
            saved = self._saved_outputs() if texts else ""
            missing = [text for text in texts if text not in saved]
            if not missing:
                return
            assert time.monotonic() < end, f"{missing} is not in what was saved: {saved}"

    def restart_kernel(self) -> None:
        """Restart the kernel without asking, and wait until the kernel is idle."""
        before = len(self.errors)
        self.page.evaluate(
            "async () => { await window.jupyterapp.shell.currentWidget.context.sessionContext.restartKernel(); }"
        )
        self.wait_for_kernel()
        meanwhile = self.errors[before:]
        self.errors[before:] = [one for one in meanwhile if not one.startswith(LAST_WORDS)]

    def interrupt_kernel(self) -> None:
        """Press Jupyter's stop button."""
        self.command("notebook:interrupt-kernel")

    @contextmanager
    def sending(self, text: str) -> Iterator[None]:
        """Wait at the end of the block until the page has sent the kernel a message with this text."""
        with self._socket_says("framesent", text):
            yield

    def dark(self) -> None:
        """Switch to Jupyter's dark theme."""
        self._theme("JupyterLab Dark")
        expect(self.page.locator("body[data-jp-theme-light=false]")).to_be_attached()

    def light(self) -> None:
        """Switch to Jupyter's light theme."""
        self._theme("JupyterLab Light")
        expect(self.page.locator(LIGHT)).to_be_attached()

    def cell(self, index: int) -> Locator:
        """The cell at this position, counted from 0, Markdown cells included."""
        return self.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]')

    def output(self, index: int) -> Locator:
        """The output area of the cell at this position."""
        return self.cell(index).locator(".jp-Cell-outputArea")

    def style(self, css: str) -> None:
        """Add a style sheet to the page."""
        style = self.page.add_style_tag(content=css)
        style.evaluate("style => { style.dataset.ofTheTest = '' }")

    def turn_to(self, index: int) -> None:
        """Click on a cell, as a person who continues reading there."""
        self.cell(index).click(position={"x": 20, "y": 5})

    def shot(self, name: str, of: Locator | None = None) -> Path:
        """Take a screenshot of the page, or of one element, as ``keep_picture`` does."""
        self.page.bring_to_front()
        return keep_picture(of or self.page, name)

    def close(self) -> None:
        """Close the tab."""
        self.page.close()

    def _wait_until_shown(self) -> None:
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        self.page.wait_for_function(SHOWN)

    def _decline_kernel(self) -> None:
        dialog = self.page.locator(DIALOG)
        dialog.locator("button.jp-mod-accept").click()
        expect(dialog).to_have_count(0)

    @contextmanager
    def _socket_says(self, event: str, text: str) -> Iterator[None]:
        said = text.encode()
        with self._sockets[-1].expect_event(event, lambda frame: said in as_bytes(frame)):
            yield

    def _saved_outputs(self) -> str:
        cells = json.loads(self._path.read_text())["cells"]
        return json.dumps([cell.get("outputs") for cell in cells], ensure_ascii=False)

    def _theme(self, theme: str) -> None:
        self.command("apputils:change-theme", theme=theme)

    def _note_socket(self, socket: WebSocket) -> None:
        if "/api/kernels/" in socket.url:
            self._sockets.append(socket)
            socket.on("framereceived", self._count)

    def _count(self, payload: str | bytes) -> None:
        self.received += len(payload)

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._note(f"{message.text} ({message.location.get('url', '')})")

    def _note_thrown(self, error: Error) -> None:
        if error.message != SPLASH or "/static/lab/jlab_core." not in (error.stack or ""):
            self._note(str(error))

    def _note(self, error: str) -> None:
        if error not in JUPYTERS_OWN_ERRORS:
            self.errors.append(error)


def keep_picture(of: Page | Locator, name: str) -> Path:
    """Take a screenshot for people, as ``shots/NAME.png``."""
    path = SHOTS / f"{name}.png"
    take_picture(of, path)
    return path


def take_picture(of: Page | Locator, path: Path) -> None:
    """Take a screenshot; if the element was replaced meanwhile, take one of the new element."""
    while True:
        try:
            of.screenshot(path=path, animations="disabled")
        except Error as error:
            if REPLACED not in error.message:  # a missing element is a timeout
                raise
        else:
            return


def as_bytes(frame: str | bytes) -> bytes:
    """A frame of a websocket, as bytes."""
    return frame.encode() if isinstance(frame, str) else frame


def no_kernels(route: Any) -> None:
    """Answer like a server without kernels."""
    route.fulfill(json={"default": "", "kernelspecs": {}})
