"""One Jupyter server and one Chromium for the browser tests of a process."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from tests.browser.notebook_page import (
    SHOTS,
    VIEWPORT,
    WAIT_MS,
    App,
    NotebookPage,
    take_picture,
)
from tests.browser.server import JupyterServer

CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = [
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NO_CHROMIUM = (
    "no Chromium found; to run the browser tests: apt-get install chromium, "
    "or set NBAGENT_CHROMIUM to the path of one"
)

expect.set_options(timeout=WAIT_MS)


def chromium_path() -> str | None:
    """The path of Chromium: ``NBAGENT_CHROMIUM``, else the first of the usual names on PATH."""
    found = (shutil.which(name) for name in CHROMIUM_NAMES)
    return os.environ.get("NBAGENT_CHROMIUM") or next(filter(None, found), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, so that ``-m "not browser"`` leaves it out."""
    for item in items:
        if "tests/browser/" in item.nodeid:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember whether the test's body failed, for the screenshot that ``open_page`` takes."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.stash[BODY_FAILED] = report.failed


BODY_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium; without Chromium the test skips, and fails in CI."""
    path = chromium_path()
    if path is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(NO_CHROMIUM)
        pytest.skip(NO_CHROMIUM)
    return path


@pytest.fixture(scope="session")
def server(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """A running Jupyter server."""
    with JupyterServer(tmp_path_factory.mktemp("jupyter") / "home", warm=True) as running:
        yield running


class Running(NamedTuple):
    """A running Chromium, and its profile, in which JupyterLab's code is loaded and compiled."""

    browser: Browser
    profile: BrowserContext
    tabs: list[NotebookPage]
    """Tabs that earlier tests left for the next: at most two with JupyterLab loaded, and one blank tab."""


_running: list[tuple[ExitStack, Running]] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Close Chromium after the last browser test: Playwright's loop must not outlive these tests in this thread."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.get_closest_marker("browser") is None:
            while _running:
                _running.pop()[0].close()


@pytest.fixture(scope="module")
def running(chromium: str) -> Running:
    """Chromium, started on first use."""
    if not _running:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            playwright = stack.enter_context(sync_playwright())
            profile = playwright.chromium.launch_persistent_context(
                folder,  # on disk, because only there Chromium caches JupyterLab's compiled code
                executable_path=chromium,
                args=CHROMIUM_FLAGS,
                viewport=VIEWPORT,
            )
            stack.callback(profile.close)
            browser = profile.browser
            assert browser is not None
            _running.append((stack.pop_all(), Running(browser, profile, [])))
    return _running[0][1]


@pytest.fixture(scope="module")
def browser(running: Running) -> Browser:
    """A running Chromium."""
    return running.browser


@pytest.fixture(scope="module")
def profile(running: Running) -> BrowserContext:
    """The browser context that all tabs share, with its cache and storage."""
    return running.profile


@pytest.fixture
def open_page(
    running: Running,
    server: JupyterServer,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., NotebookPage]]:
    """``open_page(name, app=App.LAB, kernel=True)`` opens a notebook; tabs share one profile.

    A test that fails leaves a screenshot of every tab; every kernel is shut down at the end.
    """
    pages: list[NotebookPage] = []

    def open_page(name: str, *, app: App = App.LAB, kernel: bool = True) -> NotebookPage:
        pages.append(a_tab(running, server, lab=app is App.LAB and kernel))
        return pages[-1].open(name, app, kernel=kernel)

    with ExitStack() as ends:  # every callback runs, even if an earlier one fails
        ends.callback(running.profile.clear_permissions)
        ends.callback(server.forget_settings)
        ends.callback(server.end_kernels)
        yield open_page
        failed = request.node.stash.get(BODY_FAILED, False)
        for number, page in enumerate(pages):
            if failed and not page.page.is_closed():
                test = re.sub(r"[^a-z0-9]+", "-", request.node.name)
                take_picture(page.page, SHOTS / f"failed-{test}-{number}.png")
            leave(page, running.tabs, broken=failed)


def a_tab(running: Running, server: JupyterServer, *, lab: bool) -> NotebookPage:
    """A fitting tab of an earlier test, else a new tab; a tab with JupyterLab loaded is only for JupyterLab."""
    for page in sorted(running.tabs, key=lambda page: page.waits, reverse=lab):
        if lab or not page.waits:
            running.tabs.remove(page)
            return page
    return NotebookPage(running.profile, server)


def leave(page: NotebookPage, tabs: list[NotebookPage], *, broken: bool) -> None:
    """Put the tab away for the next test; close it if it is broken or enough similar tabs exist."""
    if page.page.is_closed():
        return
    if not broken:
        page.put_away()
    alike = sum(other.waits == page.waits for other in tabs)
    if broken or alike >= (2 if page.waits else 1):
        page.close()
    else:
        tabs.append(page)


@pytest.fixture
def open_lab(open_page: Callable[..., NotebookPage]) -> Callable[..., NotebookPage]:
    """``open_lab(name)`` opens a notebook in JupyterLab."""
    return lambda name, **options: open_page(name, app=App.LAB, **options)
