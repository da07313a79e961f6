"""A real kernel, and a front end simulated with ``jupyter_client``.

``FrontEnd`` sends what JupyterLab sends: cells with their id, comm messages on the main shell or on
a subshell, the stop button. ``journey`` runs one cell that waits for an answer and answers it; a
``Form`` is one way in which a cell can wait.
"""

from __future__ import annotations

import os
import queue
import re
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.integration.install_kernels import OLDER, path_of

NEWEST = "newest"
KERNELS = [
    pytest.param(
        (version, subshell),
        id=f"{version}-{'subshell' if subshell else 'main'}",
        marks=() if version == NEWEST and not subshell else pytest.mark.variant,
    )
    for version in (*OLDER, NEWEST)
    for subshell in (False, True)
    if not (subshell and version.startswith("6."))  # ipykernel 6 has no subshells
]
"""Each version, with comm messages to the main shell or to a subshell."""
PATIENCE = 30.0
"""Seconds after which a reply counts as lost."""

MEND = "from nbagent.notebook import kernel as _kernel; _kernel.in_kernel()"

MISSING = (
    "ipykernel {version} is not installed beside the newest one; "
    "to run these tests: python tests/integration/install_kernels.py"
)


def import_path(version: str) -> str:
    """The path of an ipykernel to put first on the kernel's path; skips the test if it is missing.

    In CI, the test fails instead, because every version must be tested.
    """
    if version == NEWEST:
        return ""
    path = path_of(version)
    if path is None:
        missing = MISSING.format(version=version)
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return str(path)


@dataclass
class Outcome:
    """The messages of one request that a front end saw."""

    status: str = "none"
    """The reply's status, or ``none`` when there was no reply."""
    error: str = ""
    """The name of the exception."""
    stdout: str = ""
    displays: list[dict[str, Any]] = field(default_factory=list)
    """The mime bundles displayed, including the result of the last line."""
    states: list[str] = field(default_factory=list)
    """busy and idle, in order."""


class FrontEnd:
    """A kernel and the messages that a front end saw."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager = manager
        self._client = client
        self._replies: dict[str, dict[str, Any]] = {}
        self.seen: list[dict[str, Any]] = []
        """Every iopub message, in order."""
        self.subshell: str | None = None

    def has_subshells(self) -> bool:
        """Whether the kernel reports support for subshells."""
        reply = self._reply(self._client.kernel_info(), PATIENCE)
        assert reply is not None
        return "kernel subshells" in reply["content"].get("supported_features", [])

    def use_subshell(self) -> None:
        """Send comm messages to a subshell from now on, as JupyterLab does since 4.4."""
        self._client.control_channel.send(self._client.session.msg("create_subshell_request", {}))
        self.subshell = self._client.get_control_msg(timeout=PATIENCE)["content"]["subshell_id"]

    def send(self, code: str, *, cell_id: str = "cell", allow_stdin: bool = True) -> str:
        """Run a cell without waiting; return the request's id."""
        content = {
            "code": textwrap.dedent(code),
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": allow_stdin,
            "stop_on_error": False,
        }
        message = self._client.session.msg("execute_request", content)
        message["metadata"] = {"cellId": cell_id}
        self._client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def finish(self, request: str, *, patience: float = PATIENCE) -> Outcome:
        """Wait until a request has its reply and is idle; return its outcome."""
        reply = self._reply(request, patience)
        if reply is not None:
            self.read_until(lambda: "idle" in self.outcome(request).states, patience)
        outcome = self.outcome(request)
        if reply is not None:
            outcome.status = reply["content"]["status"]
        return outcome

    def run(self, code: str, *, cell_id: str = "cell", allow_stdin: bool = True) -> Outcome:
        """Run a cell to its end."""
        return self.finish(self.send(code, cell_id=cell_id, allow_stdin=allow_stdin))

    def must_run(self, code: str) -> str:
        """Run a cell that must succeed; return its printed output."""
        outcome = self.run(code)
        assert outcome.status == "ok", self.errors()
        return outcome.stdout

    def message(self, comm_id: str, data: dict[str, Any]) -> str:
        """Send a comm message as the page does; return its id."""
        return self.comm({"comm_id": comm_id, "data": data})

    def comm(self, content: dict[str, Any]) -> str:
        """Send a comm message with any content, even none; return its id."""
        message = self._client.session.msg("comm_msg", content)
        if self.subshell is not None:
            message["header"]["subshell_id"] = self.subshell
        self._client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def is_heard(self, after: float) -> bool:
        """Whether a cell and a request ``after`` seconds later, while the cell's reply is sent, both get replies."""
        cell = self.send("pass")
        until = time.perf_counter() + after
        while time.perf_counter() < until:
            pass
        message = self._client.session.msg("kernel_info_request", {})
        if self.subshell is not None:
            message["header"]["subshell_id"] = self.subshell
        self._client.shell_channel.send(message)
        requests = (cell, str(message["header"]["msg_id"]))
        return all(self._reply(each, PATIENCE) is not None for each in requests)

    def answer(self, comm_id: str, content: dict[str, Any]) -> str:
        """Send what ``model.send(content)`` sends; return the message's id."""
        return self.message(comm_id, {"method": "custom", "content": content})

    def change(self, comm_id: str, state: dict[str, Any]) -> str:
        """Send what ``model.set(...); model.save_changes()`` sends; return the message's id."""
        return self.message(comm_id, {"method": "update", "state": state, "buffer_paths": []})

    def interrupt(self) -> None:
        """Press the stop button."""
        self._manager.interrupt_kernel()

    def inspect(self, code: str) -> str:
        """The help that ``code?`` shows, without colors."""
        message = self._client.session.msg(
            "inspect_request", {"code": code, "cursor_pos": len(code), "detail_level": 0}
        )
        self._client.shell_channel.send(message)
        reply = self._reply(str(message["header"]["msg_id"]), PATIENCE)
        told = "" if reply is None else reply["content"]["data"].get("text/plain", "")
        return re.sub(r"\x1b\[[0-9;]*m", "", told)

    def until_printed(self, text: str, *, patience: float = PATIENCE) -> None:
        """Wait until some cell has printed a text."""
        self.read_until(lambda: text in self.printed(), patience)
        assert text in self.printed(), self.errors()

    def until_states(self, request: str, count: int) -> list[str]:
        """Wait until a request has published ``count`` states; return them."""
        self.read_until(lambda: len(self.outcome(request).states) >= count, PATIENCE)
        return self.outcome(request).states

    def printed(self) -> str:
        """The output that all cells printed, in order."""
        streams = (each["content"] for each in self.seen if each["msg_type"] == "stream")
        return "".join(each["text"] for each in streams)

    def errors(self) -> str:
        """The tracebacks seen, for a failing assertion."""
        found = (each["content"] for each in self.seen if each["msg_type"] == "error")
        return "\n".join("\n".join(each["traceback"]) for each in found)

    def outcome(self, request: str) -> Outcome:
        """The outcome of a request so far."""
        outcome = Outcome()
        for message in self.seen:
            if message["parent_header"].get("msg_id") == request:
                _note(outcome, message)
        return outcome

    def _reply(self, request: str, patience: float) -> dict[str, Any] | None:
        end = time.monotonic() + patience
        while request not in self._replies and (left := end - time.monotonic()) > 0:
            try:
                reply = self._client.get_shell_msg(timeout=left)
            except queue.Empty:
                break
            self._replies[reply["parent_header"]["msg_id"]] = reply
        return self._replies.get(request)

    def read_until(self, enough: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Read published messages until ``enough()`` is true or no message arrives."""
        end = time.monotonic() + patience
        while not enough() and (left := end - time.monotonic()) > 0:
            try:
                self.seen.append(self._client.get_iopub_msg(timeout=left))
            except queue.Empty:
                return


def _note(outcome: Outcome, message: dict[str, Any]) -> None:
    content = message["content"]
    match message["msg_type"]:
        case "stream" if content["name"] == "stdout":
            outcome.stdout += content["text"]
        case "error":
            outcome.error = content["ename"]
        case "display_data" | "execute_result":
            outcome.displays.append(content["data"])
        case "status":
            outcome.states.append(content["execution_state"])
        case _:
            pass


@contextmanager
def front_end(
    version: str = NEWEST, *, subshell: bool = False, mended: bool = True
) -> Iterator[FrontEnd]:
    """Start a kernel with an ipykernel of a version, and attach a front end to it.

    Args:
        version: of ipykernel.
        subshell: send comm messages to a subshell, as JupyterLab does.
        mended: start with nbagent's fix for requests that ipykernel 7.0 to 7.3 miss, so that
            none is missed before a test first uses nbagent.
    """
    path = import_path(version)
    before = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join(each for each in (path, before) if each)
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "default"}
    first = [f"--IPKernelApp.exec_lines={MEND}"] if mended and version.startswith("7.") else []
    sockets = tempfile.TemporaryDirectory(prefix="k")
    # files, because another process may take a TCP port before the kernel does
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets.name}/k")
    manager.start_kernel(extra_arguments=first, env=environment)
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        page = FrontEnd(manager, client)
        if subshell:
            assert page.has_subshells()
            page.use_subshell()
        if version != NEWEST:
            loaded = page.must_run("import ipykernel; print(ipykernel.__version__)").strip()
            assert loaded == version
        yield page
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        sockets.cleanup()


@dataclass(frozen=True)
class Form:
    """One way for a cell to wait for an answer.

    ``cell`` starts the work, prints ``waiting`` when it waits, and prints ``got ANSWER``
    when it continues. ``blocks`` says whether the cell runs until then.
    """

    name: str
    cell: str
    blocks: bool


def journey(page: FrontEnd, form: Form, comm_id: str, content: dict[str, Any], got: str) -> None:
    """A cell waits, the page answers, the cell's work continues, and the kernel still runs cells.

    The kernel must report the answer's message as handled (busy, then idle) while the cell still waits:
    ipywidgets holds back a person's further changes until then.
    """
    page.seen.clear()
    request = page.send(form.cell)
    page.until_printed("waiting")
    if not form.blocks:
        assert page.finish(request).status == "ok", page.errors()
    answer = page.answer(comm_id, content)
    page.until_printed(got)
    assert page.finish(request).status == "ok", page.errors()
    assert got in page.outcome(request).stdout, "the work's output left the cell that started it"
    assert page.until_states(answer, 2) == ["busy", "idle"]
    assert page.must_run("print('well')") == "well\n"
