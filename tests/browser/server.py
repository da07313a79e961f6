"""A Jupyter server of our own: JupyterLab and Notebook 7 on loopback, in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import AbstractContextManager, ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

import nbformat

from tests.browser.warm_kernel import NAME as WARM
from tests.browser.warm_kernel import Warm

START_SECONDS = 120
NEWS_OFF = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    }
}


class JupyterServer(AbstractContextManager["JupyterServer"]):
    """Serves ``home/notebooks`` while entered; ``url`` ends in a slash.

    Args:
        home: a folder that does not exist yet.
        warm: run notebooks that ``write`` makes in kernels that have already loaded nbagent.
    """

    def __init__(self, home: Path, *, warm: bool = False) -> None:
        self.home = home
        self._warm = warm
        self._ends = ExitStack()
        self.root = home / "notebooks"
        self.log = home / "server.log"
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> JupyterServer:
        self.root.mkdir(parents=True)
        settings = self.home / "config" / "labconfig" / "default_setting_overrides.json"
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps(NEWS_OFF))
        settings.with_name("page_config.json").write_text(json.dumps({"buildCheck": False}))
        try:
            if self._warm:
                kernels = self._ends.enter_context(Warm(self._environment()))
                spec = self.home / "data" / "kernels" / WARM / "kernel.json"
                spec.parent.mkdir(parents=True)
                spec.write_text(json.dumps(kernels.spec()))
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command(),
                    env=self._environment(),
                    cwd=self.root,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            self._ends.callback(self._end)
            self.url = self._wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ends.close()

    def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def write(self, name: str, *cells: str) -> str:
        """Write a notebook with these code cells and return its name."""
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["kernelspec"] = {
            "name": self.kernel,
            "display_name": "Python 3",
            "language": "python",
        }
        notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        nbformat.write(notebook, self.root / name)
        return name

    def end_kernels(self) -> None:
        """Shut down every kernel, so that tests don't share one and none outlives its test."""
        for _ in range(200):
            running = self._running()
            if not running:
                return
            for each in running:
                try:
                    self._request(each, method="DELETE")
                # the kernel is restarting, or ended with its session; the next round does not find it
                except urllib.error.HTTPError as error:
                    error.close()
            if self._running():
                time.sleep(0.05)
        raise AssertionError(f"kernels that do not end: {self._running()}")

    @property
    def kernel(self) -> str:
        """The name of the kernel that runs notebooks."""
        return WARM if self._warm else "python3"

    def restart_kernel(self, kernel_id: str) -> None:
        """Restart a kernel, as another program would."""
        self._request(f"api/kernels/{kernel_id}/restart", method="POST")

    def _running(self) -> list[str]:
        """The paths of all sessions and of all kernels, because a page may start a kernel without a session."""
        kinds = ("api/sessions", "api/kernels")
        return [f"{kind}/{each['id']}" for kind in kinds for each in self.get(kind)]

    def forget_settings(self) -> None:
        """Delete settings that a test changed, such as the theme."""
        shutil.rmtree(self.home / "settings", ignore_errors=True)

    def get(self, path: str) -> Any:
        """The JSON at ``path``."""
        return json.loads(self._request(path))

    def _request(self, path: str, *, method: str = "GET") -> bytes:
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return bytes(response.read())

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *("--ip=127.0.0.1", "--port=0", "--IdentityProvider.token="),
            "--ServerApp.disable_check_xsrf=True",
            f"--ServerApp.root_dir={self.root}",
            "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
        ]

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "JUPYTER_CONFIG_PATH": str(self.home / "config"),
            "JUPYTER_CONFIG_DIR": str(self.home / "config-own"),
            "JUPYTER_DATA_DIR": str(self.home / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.home / "runtime"),
            "JUPYTERLAB_WORKSPACES_DIR": str(self.home / "workspaces"),
            "JUPYTERLAB_SETTINGS_DIR": str(self.home / "settings"),
            "IPYTHONDIR": str(self.home / "ipython"),
        }

    def _wait_until_up(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            url = self._announced_url()
            if url and answers(url + "api/status"):
                return url
            time.sleep(0.1)
        raise RuntimeError(f"the Jupyter server did not start:\n{self.log.read_text()[-4000:]}")

    def _announced_url(self) -> str:
        for file in (self.home / "runtime").glob("jpserver-*.json"):
            text = file.read_text()
            if text.endswith("}"):
                return str(json.loads(text)["url"])
        return ""


def answers(url: str) -> bool:
    """Whether a server answers with status 200 at ``url`` now."""
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return bool(response.status == HTTPStatus.OK)
    except OSError:
        return False
