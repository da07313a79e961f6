"""``nbagent demo``: open the quickstart in JupyterLab."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .output import CommandError, print_text

NOTEBOOK = "01_quickstart.ipynb"
HOST = "127.0.0.1"
START_SECONDS = 120
STOP_SECONDS = 15

NEEDED = ("jupyterlab", "ipykernel")
MISSING = (
    "nbagent demo needs {names}, which this Python ({python}) does not have. Install with:\n  {python} -m pip "
    'install "jupyter-nbagent[demo]"\nor, in a checkout of nbagent:\n  {python} -m pip install -e ".[demo]"'
)
NEWS_OFF = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    }
}


def demo(options: argparse.Namespace) -> int:
    """Serve a folder, with the quickstart in it, until Ctrl+C; return the exit code.

    Raises:
        CommandError: JupyterLab is missing or did not start, or the folder cannot be written.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(MISSING.format(names=" and ".join(missing), python=sys.executable))
    copy, exists = copy_quickstart(options.dir)
    done = f"{copy} already exists and was not changed"
    print_text(done if exists else f"Copied the quickstart to {copy}")
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="nbagent-demo-", ignore_cleanup_errors=True) as scratch:
        environment = jupyter_environment(Path(scratch), os.environ)
        command = jupyter_command(options.dir.resolve(), options.port, open_browser=options.browser)
        server = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        try:
            url = _wait_for_url(server, environment["JUPYTER_TOKEN"])
            print_text(f"Quickstart: {url}\nStop with Ctrl+C.")
            sys.stdout.flush()
            return server.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            _stop(server)


def quickstart() -> Path:
    """The path of the notebook: in the package of a wheel, in ``notebooks/`` of a checkout."""
    package = Path(__file__).resolve().parent.parent
    shipped = package / "static" / NOTEBOOK
    return shipped if shipped.is_file() else package.parent / "notebooks" / NOTEBOOK


def without_outputs(notebook: Path) -> bytes:
    """The JSON of a notebook without the outputs of its cells."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def copy_quickstart(folder: Path) -> tuple[Path, bool]:
    """Copy the quickstart into ``folder``, unless it exists; return its path, and whether it existed.

    Raises:
        CommandError: the folder cannot be written.
    """
    target = folder / NOTEBOOK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(without_outputs(quickstart()))
    except FileExistsError:
        if not target.is_file():
            raise CommandError(
                f"Cannot write the notebook: {str(target)!r} is not a file. Choose another folder with --dir"
            ) from None
        return target, True
    except OSError as error:
        raise CommandError(
            f"Cannot write {str(target)!r} ({error}). Choose another folder with --dir"
        ) from error
    return target, False


def jupyter_command(folder: Path, port: int, *, open_browser: bool) -> list[str]:
    """The command that serves ``folder`` and opens the quickstart."""
    command = [
        *(sys.executable, "-m", "jupyterlab", f"--ip={HOST}", f"--port={port}"),
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{NOTEBOOK}",
        "--ServerApp.answer_yes=True",
        "--ServerApp.log_level=WARN",
        "--LabApp.log_level=WARN",
    ]
    if not open_browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # in containers; safe: loopback only, with a token
    return command


def jupyter_environment(scratch: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` with a token, no news pop-up, and this Python as the kernel ``python3``.

    The settings and the kernel are written below ``scratch``, which must outlive the server.
    """
    from ipykernel.kernelspec import write_kernel_spec  # noqa: PLC0415  (an extra, loaded late)

    settings = scratch / "config" / "labconfig" / "default_setting_overrides.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(NEWS_OFF))
    quiet = ["--log-level=ERROR"]  # else each kernel warns that loopback is not encrypted
    kernel = scratch / "data" / "kernels" / "python3"
    write_kernel_spec(str(kernel), extra_arguments=quiet)
    return {
        **environment,
        "JUPYTER_TOKEN": secrets.token_urlsafe(24),
        "JUPYTER_CONFIG_PATH": _first(scratch / "config", environment.get("JUPYTER_CONFIG_PATH")),
        "JUPYTER_PATH": _first(scratch / "data", environment.get("JUPYTER_PATH")),
    }


def add(commands: Any) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "demo",
        help="open the quickstart notebook in JupyterLab; needs no API key",
        description="Copy the quickstart notebook into a folder and open it in JupyterLab. "
        "It runs on a built-in demo model and needs no API key.",
    )
    command.add_argument(
        "--port", type=_port, default=8888, metavar="N", help="default 8888; 0 chooses a free port"
    )
    command.add_argument(
        "--no-browser", dest="browser", action="store_false", help="only print the address"
    )
    command.add_argument(
        "--dir",
        type=Path,
        default=Path("nbagent-demo"),
        metavar="FOLDER",
        help="the folder for the notebook, default ./nbagent-demo; existing files are kept",
    )
    command.set_defaults(run=demo)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port. Use a number from 0 to 65535")
    return int(text)


def _first(folder: Path, rest: str | None) -> str:
    return os.pathsep.join(filter(None, (str(folder), rest)))


def _wait_for_url(server: subprocess.Popen[bytes], token: str) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise CommandError(
                f"JupyterLab exited during startup with exit code {server.returncode}"
            )
        for info in _running_servers():
            is_started_here = token == info["token"] or server.pid == info["pid"]
            if is_started_here and _listens(info["url"]):
                # the user's configuration may disable the token
                query = f"?token={info['token']}" if info["token"] else ""
                return f"{info['url']}lab/tree/{NOTEBOOK}{query}"
        time.sleep(0.1)
    raise CommandError(f"JupyterLab did not start within {START_SECONDS} s")


def _listens(url: str) -> bool:
    """Whether the server at an address accepts connections; Jupyter lists a server shortly before that."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or HOST, parts.port or 80), timeout=5):
            return True
    except OSError:
        return False


def _running_servers() -> list[dict[str, Any]]:
    from jupyter_server.serverapp import list_running_servers  # noqa: PLC0415  (an extra, loaded late)

    with suppress(json.JSONDecodeError):  # another server is just writing its file: ask again
        return list(list_running_servers())
    return []


def _stop(server: subprocess.Popen[bytes]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl+C must not end the wait
    server.terminate()
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
