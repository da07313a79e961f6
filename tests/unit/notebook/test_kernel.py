"""The kernel module without a kernel: it only waits, and imports nothing of Jupyter."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from nbagent.notebook import kernel
from tests.integration.kernels import NEWEST, OLDER, import_path


def later(settle: Callable[[], object]) -> None:
    threading.Timer(0.05, settle).start()


@pytest.mark.parametrize("module", ["kernel", "capture"])
def test_importing_nbagent_imports_neither_jupyter_nor_the_libraries_it_adapts(module: str) -> None:
    """A script that uses nbagent must not load a notebook's libraries."""
    heavy = {"IPython", "ipykernel", "zmq", "ipywidgets", "matplotlib", "tqdm"}
    code = (
        f"import sys; from nbagent.notebook import {module} as it; "
        f"getattr(it, 'install', int)(); print(*sorted({heavy!r} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


def test_outside_of_a_kernel_no_person_is_present() -> None:
    """Every function returns a value, and none raises."""
    asked = (kernel.in_kernel(), kernel.attended(), kernel.cell_id(), kernel.execution_key())
    assert asked == (False, False, None, None)
    assert kernel.kernel_loop() is None


def test_pump_outside_of_a_kernel_returns_the_result_of_the_future() -> None:
    """A result, or its exception, even one that looks like a timeout."""
    done: Future[str] = Future()
    later(lambda: done.set_result("yes"))
    assert kernel.pump(done) == "yes"
    late: Future[str] = Future()
    later(lambda: late.set_exception(TimeoutError("the run's own")))
    with pytest.raises(TimeoutError, match="the run's own"):
        kernel.pump(late)


@pytest.mark.parametrize("detach", [False, True], ids=["stop", "detach"])
async def test_a_cancelled_wait_stops_the_run_only_through_the_callback(
    detach: bool,
) -> None:
    """The future outlives the wait; the callback decides whether the run is cancelled."""
    future: Future[str] = Future()
    stopped: list[str] = []
    on_interrupt = None if detach else lambda: stopped.append("stopped")
    waiting = asyncio.ensure_future(kernel.wait(future, on_kernel_interrupt=on_interrupt))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert stopped == ([] if detach else ["stopped"])
    assert not future.cancelled()
    future.set_exception(ValueError("nobody waits, nobody complains"))
    await asyncio.sleep(0)


async def test_a_run_that_is_cancelled_by_code_is_not_a_kernel_interrupt() -> None:
    """Only the cell's own cancellation calls the callback."""
    stopped: list[str] = []
    inner = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(inner.cancel)
    with pytest.raises(asyncio.CancelledError):
        await kernel.wait(inner, on_kernel_interrupt=lambda: stopped.append("stopped"))
    assert stopped == []


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_a_missing_ipykernel_skips_here_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, ci: str, outcome: type[BaseException]
) -> None:
    """CI that skips the matrix would pass without having tested; the message says what to do."""
    monkeypatch.setenv("NBAGENT_KERNELS", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=r"install_kernels\.py"):
        import_path(OLDER[0])
    assert import_path(NEWEST) == ""
