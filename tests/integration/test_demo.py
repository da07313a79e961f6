"""Runs ``nbagent demo`` as a real process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def demo(cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command and its printed address; killed at the end if needed."""
    command = [sys.executable, "-m", "nbagent", "demo", "--no-browser", "--port", "0"]
    paths = {name: str(cwd / name) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | paths,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        watchdog = threading.Timer(120, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            yield process, printed_url(process)
        finally:
            watchdog.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def printed_url(process: subprocess.Popen[str]) -> str:
    """The first address in the command's output."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if found := re.search(r"http://\S+", line):
            return found.group()
    raise AssertionError(f"no address was printed:\n{''.join(lines)}")


def fetch(url: str, path: str) -> str:
    """The text at ``path`` of the server at ``url``, with its token."""
    parts = urllib.parse.urlsplit(url)
    address = urllib.parse.urlunsplit(parts._replace(path=path))
    with urllib.request.urlopen(address, timeout=30) as response:
        return response.read().decode()


@pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")
@pytest.mark.parametrize(
    ("signal_", "code"),
    [(signal.SIGINT, 0), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.variant)],
)
def test_the_demo_serves_the_quickstart_until_it_is_stopped(signal_, code, tmp_path):
    """The address opens JupyterLab with the copy, on this Python; after a signal, the server is stopped."""
    with demo(tmp_path) as (process, url):
        assert urllib.parse.urlsplit(url).path == "/lab/tree/01_quickstart.ipynb"
        assert "jupyter-config-data" in fetch(url, "/lab/tree/01_quickstart.ipynb")
        names = [entry["name"] for entry in json.loads(fetch(url, "/api/contents"))["content"]]
        assert names == ["01_quickstart.ipynb"]
        kernel = json.loads(fetch(url, "/api/kernelspecs"))["kernelspecs"]["python3"]
        assert kernel["spec"]["argv"][0] == sys.executable
        settings = fetch(url, "/lab/api/settings/@jupyterlab/apputils-extension:notification")
        assert json.loads(settings)["schema"]["properties"]["fetchNews"]["default"] == "false"
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            fetch(url.partition("?")[0], "/api/contents")
        refused.value.close()
        process.send_signal(signal_)
        assert process.wait(60) == code
        assert "Traceback" not in process.stdout.read()
    with pytest.raises(urllib.error.URLError):
        fetch(url, "/api/status")
    assert (tmp_path / "nbagent-demo" / "01_quickstart.ipynb").is_file()
