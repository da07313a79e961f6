"""VS Code's own renderer of widgets in a page as VS Code makes it, on a real kernel.

A window that scrolls by itself has a frame of 12,000 pixels, in which outputs are placed absolutely. The frame is an
emptied JupyterLab page, whose connection to the kernel is used. As in VS Code,

- body and document have no height; the window does not scroll with ``scrollIntoView``, but with the wheel;
- the classes of the first two widgets cannot be loaded, if the notebook has Markdown;
- comm messages use no subshell, so they wait while a cell runs;
- the page gets a kernel whose status reports a restart, but never that it died;
- an update of a display counts only if its cause is the execution of the cell. With the same widget, the page leaves
  the card as it is;
- a notebook file has the last bundle of each display, and no state of widgets.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import anywidget
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Frame,
    Locator,
    Request,
    Route,
)

from tests.browser.notebook_page import keep_picture
from tests.browser.server import JupyterServer
from tests.integration.install_vscode_renderer import folder

WINDOW = """<!doctype html><title>notebook</title>
<style>
  body { margin: 0; }
  #window { position: relative; height: 100vh; overflow: clip; }
  iframe { position: absolute; width: 100%; height: 12000px; border: 0; }
</style>
<div id="window"><iframe name="outputs" src="LAB"></iframe></div>
<script>
  const frame = document.querySelector("iframe");
  let top_ = 0;
  window.scrollOutputs = (to) => {
    top_ = Math.max(0, to);
    frame.style.top = `${-top_}px`;
  };
  window.turnWheel = (by) => scrollOutputs(top_ + by);
  window.scrolledTo = () => top_;
</script>"""
START = """async (base) => {
  for (const el of document.querySelectorAll("style, link[rel=stylesheet]")) el.remove();
  document.body.replaceChildren();
  document.body.removeAttribute("style");
  document.documentElement.removeAttribute("style");
  document.head.appendChild(document.createElement("style")).textContent = `
    body { margin: 0; overflow: hidden; position: static; }
    .cell { position: absolute; left: 0; width: 100%; box-sizing: border-box; padding: 0 24px; }
    .cell-output-ipywidget-background { background: white !important; }
  `;
  const kernel = await window.jupyterapp.serviceManager.kernels.startNew({ name: "KERNEL" });
  kernel.commsOverSubshells = "disabled";
  await kernel.info;
  const slots = new Map();
  const dead = new Set(["dead", "autorestarting"]);
  const statusChanged = {
    connect(slot) {
      slots.set(slot, (_, status) => dead.has(status) || slot(proxy, status));
      kernel.statusChanged.connect(slots.get(slot));
    },
    disconnect: (slot) => kernel.statusChanged.disconnect(slots.get(slot)),
  };
  const proxy = new Proxy(kernel, {
    get(target, key) {
      if (key === "statusChanged") return statusChanged;
      if (key === "status" && dead.has(target.status)) return "idle";
      const value = Reflect.get(target, key);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  window.kernelId = kernel.id;
  await new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: `${base}vscode/require.js` });
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
  window.requirejs.config({ paths: { anywidget: `${base}vscode/anywidget` } });
  const { activate } = await import(`${base}vscode/ipywidgets.js`);
  activate();
  window.vscIPyWidgets8.load();
  // VS Code's renderer of Markdown leaves two such definitions: the page's first two classes of widgets fail
  for (const _ of [1, 2]) window.define(() => ({}));
  const loader = {
    widgetsRegisteredInRequireJs: new Set(["anywidget"]),
    loadWidgetScript: async () => {},
    successHandler() {},
    errorHandler: (...about) => console.error("no widget class", ...about.map(String)),
  };
  const cells = document.body.appendChild(document.createElement("div"));
  const place = () => {
    let at = 24;
    for (const cell of cells.querySelectorAll(".cell")) {
      cell.style.top = `${at}px`;
      at += cell.offsetHeight + 60;
    }
  };
  const sizes = new ResizeObserver(place);
  const manager = new window.vscIPyWidgets.WidgetManager(proxy, cells, loader, () => {});
  const shown = new Map();
  const WIDGET = "application/vnd.jupyter.widget-view+json";
  const draw = async (node, data) => {
    const widget = data[WIDGET];
    node.className = "";
    if (!widget) {
      if (data["text/html"]) node.innerHTML = data["text/html"];
      else node.textContent = data["text/plain"];
      return;
    }
    node.className = "cell-output-ipywidget-background";
    const view = await manager.create_view(await manager.get_model(widget.model_id));
    await manager.display_view(data, view, { node });
  };
  const newCell = () => {
    const cell = cells.appendChild(document.createElement("div"));
    cell.className = "cell";
    sizes.observe(cell);
    return cell;
  };
  window.runCell = (code) => {
    const output = newCell();
    const future = kernel.requestExecute({ code }, false);
    future.onIOPub = ({ header, content }) => {
      if (["display_data", "execute_result"].includes(header.msg_type)) {
        const node = output.appendChild(document.createElement("div"));
        const id = content.transient?.display_id ?? Symbol();
        shown.set(id, { node, data: content.data, metadata: content.metadata, cause: future.msg.header.msg_id });
        draw(node, content.data).catch((error) => console.error("not drawn", error));
      } else if (header.msg_type === "stream") output.append(content.text);
      else if (header.msg_type === "error") output.append(content.traceback.join("\\n"));
    };
  };
  window.updates = [];
  kernel.iopubMessage.connect((_, { header, content, parent_header }) => {
    const one = header.msg_type === "update_display_data" && shown.get(content.transient.display_id);
    if (!one || parent_header.msg_id !== one.cause) return;
    const [before, now] = [one.data, content.data].map((data) => data[WIDGET]?.model_id);
    const isSame = before && before === now && JSON.stringify(one.metadata) === JSON.stringify(content.metadata);
    window.updates.push(JSON.stringify(content).length);
    one.data = content.data;
    if (!isSame) {
      one.node.replaceChildren();
      draw(one.node, content.data);
    }
  });
  window.saved = () => [...shown.values()].map(({ data }) => data);
  window.reopen = () => {
    const bundles = window.saved();
    cells.replaceChildren();
    for (const data of bundles) newCell().innerHTML = data["text/html"] ?? data["text/plain"];
  };
  window.addEventListener("wheel", (event) => window.parent.turnWheel(-event.wheelDeltaY / 120 * 50 / devicePixelRatio));
  window.setTheme = ({ classes, colors }) => {
    document.body.className = classes.join(" ");
    const style = document.documentElement.style;
    style.cssText = "";
    for (const [name, value] of Object.entries(colors)) style.setProperty(name, value);
    style.background = colors["--vscode-editor-background"];
  };
}"""
NBEXTENSION = Path(anywidget.__file__).parent / "nbextension" / "index.js"
THEMES: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "vscode_themes.json").read_text()
)
"""The classes of VS Code's page, and its colors, in each of its standard themes."""
THE_PAGES_OWN_ERRORS = ("Yjs was already imported",)
"""JupyterLab, whose page this is, has loaded the same library."""


class VSCodePage:
    """Cells without a notebook: code in, outputs below one another."""

    def __init__(
        self, context: BrowserContext, server: JupyterServer, theme: str = "Dark Modern"
    ) -> None:
        self._server = server
        self.errors: list[str] = []
        """Errors that the page logged or threw."""
        self.page = context.new_page()
        self.page.set_viewport_size({"width": 800, "height": 513})
        # a workspace of its own: JupyterLab reloads the page after a while if another tab uses the same workspace
        lab = f"{server.url}lab/workspaces/vscode-{uuid.uuid4().hex}?reset"
        self.page.route(
            "**/vscode/window.html",
            lambda route: route.fulfill(body=WINDOW.replace("LAB", lab), content_type="text/html"),
        )
        self.page.goto(f"{server.url}vscode/window.html")
        frame = self.page.frame("outputs")
        assert frame is not None
        self.frame: Frame = frame
        self.frame.wait_for_function("() => window.jupyterapp?.serviceManager?.isReady")
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._note)
        for name in ("ipywidgets.js", "require.js"):
            self._serve(name, folder() / name)
        self._serve("anywidget.js", NBEXTENSION)
        self.frame.evaluate(START.replace("KERNEL", server.kernel), server.url)
        self.show_theme(theme)
        self._cells = 0

    def _note(self, told: ConsoleMessage) -> None:
        if told.type == "error" and not told.text.startswith(THE_PAGES_OWN_ERRORS):
            self.errors.append(told.text)

    def run_cell(self, code: str) -> Locator:
        """Start a cell; return its output."""
        self.frame.evaluate("code => window.runCell(code)", code)
        self._cells += 1
        return self.frame.locator(".cell").nth(self._cells - 1)

    def show_theme(self, name: str) -> None:
        """Switch to one of ``THEMES``."""
        self.frame.evaluate("theme => window.setTheme(theme)", THEMES[name])

    def saved(self) -> list[dict[str, Any]]:
        """The bundles in the file, if the notebook were saved now."""
        bundles: list[dict[str, Any]] = self.frame.evaluate("() => window.saved()")
        return bundles

    def reopen(self) -> None:
        """Show what was saved, without a kernel."""
        self.frame.evaluate("() => window.reopen()")

    def restart_kernel_elsewhere(self) -> None:
        """Restart the kernel by the server's interface; this page does not learn of it."""
        self._server.restart_kernel(self.frame.evaluate("() => window.kernelId"))

    def scroll_to(self, y: float) -> None:
        """Scroll the window."""
        self.page.evaluate("y => scrollOutputs(y)", y)

    def show(self, element: Locator) -> None:
        """Scroll the window to a little above the element."""
        self.scroll_to(element.evaluate("el => el.getBoundingClientRect().top") - 16)

    def scrolled_to(self) -> float:
        """The pixels by which the window is scrolled."""
        return float(self.page.evaluate("() => scrolledTo()"))

    def is_visible(self, element: Locator) -> bool:
        """Whether the top of the element is in the window."""
        box = element.bounding_box()
        return box is not None and -1 <= box["y"] < self.page.viewport_size["height"]  # type: ignore[index]

    def shot(self, name: str) -> None:
        """Take a screenshot of the window."""
        keep_picture(self.page, name)

    def _serve(self, name: str, path: Path) -> None:
        def answer(route: Route, _request: Request) -> None:
            route.fulfill(path=path, content_type="text/javascript")

        self.page.route(f"**/vscode/{name}", answer)
