"""VS Code's own renderer of widgets in a test page, on a real kernel.

The page is an emptied JupyterLab page, whose connection to the kernel is used. As in VS Code, comm messages
use no subshell: they wait while a cell runs.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import anywidget
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Request, Route

from tests.browser.server import JupyterServer
from tests.integration.install_vscode_renderer import folder

START = """async (base) => {
  document.body.replaceChildren();
  document.body.style = "overflow: auto; position: static; background: white; padding: 20px";
  const kernel = await window.jupyterapp.serviceManager.kernels.startNew({ name: "python3" });
  kernel.commsOverSubshells = "disabled";
  await kernel.info;
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
  const loader = {
    widgetsRegisteredInRequireJs: new Set(["anywidget"]),
    loadWidgetScript: async () => {},
    successHandler() {},
    errorHandler: (...about) => console.error("no widget class", ...about.map(String)),
  };
  const cells = document.body.appendChild(document.createElement("div"));
  const manager = new window.vscIPyWidgets.WidgetManager(kernel, cells, loader, () => {});
  const shown = new Map();
  const draw = async (node, data) => {
    const widget = data["application/vnd.jupyter.widget-view+json"];
    if (!widget) {
      if (data["text/html"]) node.innerHTML = data["text/html"];
      else node.textContent = data["text/plain"];
      return;
    }
    const view = await manager.create_view(await manager.get_model(widget.model_id));
    await manager.display_view(data, view, { node });
  };
  window.runCell = (code) => {
    const output = cells.appendChild(document.createElement("div"));
    output.className = "cell";
    kernel.requestExecute({ code }, false).onIOPub = ({ header, content }) => {
      if (["display_data", "execute_result"].includes(header.msg_type)) {
        const node = output.appendChild(document.createElement("div"));
        shown.set(content.transient?.display_id, node);
        draw(node, content.data).catch((error) => console.error("not drawn", error));
      } else if (header.msg_type === "stream") output.append(content.text);
      else if (header.msg_type === "error") output.append(content.traceback.join("\\n"));
    };
  };
  kernel.iopubMessage.connect((_, { header, content }) => {
    const node = header.msg_type === "update_display_data" && shown.get(content.transient.display_id);
    if (node) draw(node, content.data);
  });
}"""
NBEXTENSION = Path(anywidget.__file__).parent / "nbextension" / "index.js"


THE_PAGES_OWN_ERRORS = ("Yjs was already imported",)
"""JupyterLab, whose page this is, has loaded the same library."""


class VSCodePage:
    """Cells without a notebook: code in, outputs below one another."""

    def __init__(self, context: BrowserContext, server: JupyterServer) -> None:
        self.errors: list[str] = []
        """Errors that the page logged or threw."""
        self.page = context.new_page()
        # a workspace of its own: JupyterLab reloads the page after a while if another tab uses the same workspace
        self.page.goto(f"{server.url}lab/workspaces/vscode-{uuid.uuid4().hex}?reset")
        self.page.wait_for_function("() => window.jupyterapp?.serviceManager?.isReady")
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._note)
        for name in ("ipywidgets.js", "require.js"):
            self._serve(name, folder() / name)
        self._serve("anywidget.js", NBEXTENSION)
        self.page.evaluate(START, server.url)
        self._cells = 0

    def _note(self, told: ConsoleMessage) -> None:
        if told.type == "error" and not told.text.startswith(THE_PAGES_OWN_ERRORS):
            self.errors.append(told.text)

    def run_cell(self, code: str) -> Locator:
        """Start a cell; return its output."""
        self.page.evaluate("code => window.runCell(code)", code)
        self._cells += 1
        return self.page.locator(".cell").nth(self._cells - 1)

    def _serve(self, name: str, path: Path) -> None:
        def answer(route: Route, _request: Request) -> None:
            route.fulfill(path=path, content_type="text/javascript")

        self.page.route(f"**/vscode/{name}", answer)
