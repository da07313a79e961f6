"""The notebooks as tests: what each cell says is compared with what is saved, and how a card is drawn is not.

A card's words are its ``text/plain``. Its HTML changes with the look of all cards; ``python -m tests.integration.tutorials``
writes it anew, and the tests of the look are elsewhere.
"""

from __future__ import annotations

import tempfile
from typing import Any

import nbval.kernel
import pytest
import zmq
from jupyter_client.manager import KernelManager
from nbval.plugin import IPyNbCell

LOOKS = ("text/html", "image/png", "image/svg+xml")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out how things look where outputs are compared."""
    for notebook in {item.parent for item in items if isinstance(item, IPyNbCell)}:
        notebook.skip_compare = (*notebook.skip_compare, *LOOKS)


_sockets = tempfile.TemporaryDirectory(prefix="k")


def _on_files(**options: Any) -> KernelManager:
    """A kernel's manager that connects by files, because another process may take a TCP port before the kernel does."""
    place = tempfile.mkdtemp(dir=_sockets.name, prefix="")
    return KernelManager(transport="ipc", ip=f"{place}/k", **options)


if zmq.has("ipc"):  # everywhere but on Windows
    nbval.kernel.KernelManager = _on_files
