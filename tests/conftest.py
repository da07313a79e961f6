"""Settings of all tests: no API key, and no way to a real model."""

from __future__ import annotations

import argparse
import gc
import math
import os
import signal
import zlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from nbagent.core.base.origin import process
from nbagent.models.openai.providers import KEYS

from .postgres import server
from .unit.core.schedules.search import THOROUGH

settings.register_profile(
    "any machine",
    settings.default,
    deadline=None,  # a slow test on a busy machine is not a bug
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("any machine")

SHADOWS = Path(__file__).parent / "shadows"
"""Modules that the tests' processes import first."""
REFUSED = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def no_real_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away all API keys and point the client at a port that refuses."""
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", REFUSED)


@pytest.fixture(autouse=True)
def no_code_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start like a process in which no model's code has run."""
    monkeypatch.setattr(process, "may_run_code", False)
    monkeypatch.setattr(process, "has_run_code", False)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Path]:
    """A PostgreSQL server of this worker; ``tests.postgres.database`` makes databases in it."""
    with server() as place:
        yield place


SLOWEST = (
    "test_answers.py",
    "test_tutorial_questions.py",
    "test_saved.py",
    "browser/test_inbox.py",
    "test_published_forms.py",
    "tests/browser/",
    "test_any_schedule.py",
    "test_kernel.py",
)
"""The files that take longest, longest first: started last, one file would keep a core idle.

Browser files run together, because they share the browser's tabs.
"""


LONGER = (
    "tests/browser/",
    "tests/integration/",
    "tests/typing/",
    "unit/core/schedules/",
    "notebooks/",
)
"""Folders whose tests start other programs or search: a test may take ``LONGER_LIMIT`` seconds."""
LONGER_LIMIT = 300
AGAIN = 30
"""Seconds after which a test that goes on after its time was up is interrupted again."""


CORE_MINUTES = 32
"""Minutes that the whole suite takes on one core, about; half are the browser tests."""
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
SEARCHING = (
    "usepdb",
    "trace",
    "keyword",
    "maxfail",
    "lf",
    "failedfirst",
    "stepwise",
    "collectonly",
    "setupplan",
)
"""Options of someone who searches for a failure: tests then run in one process, which starts at once."""


def is_whole(option: argparse.Namespace, args: Sequence[str]) -> bool:
    """Whether only whole folders are tested, and no option sets the number of processes or searches for a failure."""
    if option.numprocesses is not None or option.tx or option.dist != "no":
        return False
    if any(getattr(option, name, None) for name in SEARCHING):
        return False
    return all(Path(each).is_dir() for each in args)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Test whole folders in parallel; all tests of a notebook or browser file run in one process.

    Tests wait for browsers and kernels for about a third of their time, so there are more processes than cores.
    """
    if hasattr(config, "workerinput") or not config.pluginmanager.hasplugin("xdist"):
        return  # a worker of xdist must not start workers
    if is_whole(config.option, config.args):
        config.option.numprocesses = (CORES * 3 + 1) // 2
        config.option.dist = "loadfile"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect no garbage while tests are collected, which makes hardly any."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Leave all that was loaded so far out of Python's garbage collections, which else take half a second each."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str | None:
    """The time that the whole suite takes."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.option.keyword:
        return None
    processes = getattr(config.option, "numprocesses", None) or 1
    minutes = math.ceil(CORE_MINUTES / min(processes, CORES))
    return f"everything takes about {minutes} minutes (processes: {processes})"


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order below with ``--dist loadfile``, which sorts by the number of tests; shadow a package."""
    config.option.loadscopereorder = False
    path = (str(SHADOWS), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, Any, Any]:
    """Interrupt a test until it ends: a loop can lose one exception, and its task then waits for ever."""
    is_set = yield
    if settings.method == "signal":  # not on Windows
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, AGAIN)
    item.stash[LIMIT] = settings
    return is_set


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Limit the teardown too: pytest-timeout stops its clock when a test has failed."""
    if LIMIT in item.stash:
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[LIMIT])


LIMIT = pytest.StashKey[Any]()
"""A test's settings of pytest-timeout, if it has a limit."""


VARIANTS = 4
"""CI tests each such variant of a test, beginning with another one in each test; together they test all versions."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out most variants in CI, and begin with the slowest files.

    Some files get more time, and a search of a whole night no limit.
    """
    if "CI" in os.environ and not THOROUGH:
        tests: dict[str, list[pytest.Item]] = {}
        for item in items:
            if item.get_closest_marker("variant"):
                tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
        others = {
            item
            for name, variants in tests.items()
            for number, item in enumerate(variants, zlib.crc32(name.encode()))
            if number % VARIANTS
        }
        config.hook.pytest_deselected(items=[*others])
        items[:] = [item for item in items if item not in others]
    for item in items:
        if THOROUGH or any(folder in item.nodeid for folder in LONGER):
            item.add_marker(pytest.mark.timeout(0 if THOROUGH else LONGER_LIMIT))

    def place(item: pytest.Item) -> int:
        return next((n for n, name in enumerate(SLOWEST) if name in item.nodeid), len(SLOWEST))

    items.sort(key=place)
