"""The opt-in for libraries that call ``asyncio.run`` inside a tool."""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec

from nbagent.core.base.errors import UsageError
from nbagent.core.call.threads import running_loop


def allow_nested() -> None:
    """Allow ``asyncio.run`` while a loop already runs, for a synchronous library in a tool.

    nbagent itself never needs this function, not even to wait for a form. The function patches asyncio for the
    whole process: with ``nest_asyncio2`` if that package is installed, else with ``nest_asyncio``.

    Raises:
        UsageError: the running loop is not asyncio's own, such as uvloop's, or neither package is installed.
    """
    loop = running_loop()
    if loop is not None and not isinstance(loop, asyncio.BaseEventLoop):
        raise UsageError(
            f"nb.allow_nested() needs asyncio's own event loop, and cannot patch that of {type(loop).__module__}. Call the "
            "library in a tool that is a plain def: it runs in its own thread, where asyncio.run works"
        )
    name = "nest_asyncio2" if find_spec("nest_asyncio2") else "nest_asyncio"
    if not find_spec(name):
        raise UsageError(
            "nb.allow_nested() needs the package nest_asyncio2. Run: pip install nest_asyncio2"
        )
    import_module(name).apply()
