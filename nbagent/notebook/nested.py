"""The opt-in for libraries that call ``asyncio.run`` inside a tool."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec


def allow_nested() -> None:
    """Allow ``asyncio.run`` while a loop already runs, for a synchronous library in a tool.

    nbagent itself never needs this function, not even to wait for a form. The function patches asyncio for the
    whole process: with ``nest_asyncio2`` if that package is installed, else with ``nest_asyncio``.
    """
    name = "nest_asyncio2" if find_spec("nest_asyncio2") else "nest_asyncio"
    import_module(name).apply()
