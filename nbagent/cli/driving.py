"""``--agent``: load the agent, and continue a run with it in this command."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from nbagent.core.agent import Agent
from nbagent.core.base.errors import NbagentError
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.flow import Flow
from nbagent.core.journal.store import Store
from nbagent.core.run.answers import AnyResolution
from nbagent.core.run.run import Run
from nbagent.core.stored.opening import open_run

from .output import USAGE, CommandError

HELP = "module:name, or file.py:name, of the agent or flow; continues the run in this command"


def load_agent(given: str) -> Agent | Flow[..., Any]:
    """Load the agent or flow with this name.

    Raises:
        CommandError: the agent or flow does not exist. Errors of its module are not caught.
    """
    place, _, name = given.rpartition(":")
    if not place or not name:
        raise CommandError(f"--agent must be module:name or file.py:name, got {given!r}", USAGE)
    found: Any = _module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise CommandError(f"--agent {given!r}: {place!r} has no {part!r}", USAGE)
        found = getattr(found, part)
    if not isinstance(found, Agent | Flow):
        kind = type(found).__name__
        raise CommandError(f"--agent {given!r} is a {kind}, not an agent or a flow", USAGE)
    return found


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            raise CommandError(f"--agent: the module {place!r} was not found", USAGE) from error
    path = Path(place).resolve()
    if not path.is_file():
        raise CommandError(f"--agent: the file {place!r} does not exist", USAGE)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # it ends with .py
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def continue_run(
    run_id: str,
    agent: Agent | Flow[..., Any],
    store: Store,
    answer: tuple[PendingInterrupt, AnyResolution] | None,
    by: str,
) -> Run:
    """Answer a question of a run, if there is an answer, and drive the run until it needs an answer or has ended.

    Output of tools goes to standard error.

    Raises:
        NbagentError: the answer is not valid.
    """
    with contextlib.redirect_stdout(sys.stderr):
        run = await open_run(run_id, agent=agent, store=store, attended=False, show=False)
        if answer is not None:
            interrupt, resolution = answer
            await run.resolve(interrupt.id, resolution, by=by)
        with contextlib.suppress(NbagentError):  # a failed run has its error in the journal
            await run.settled()
        return run
