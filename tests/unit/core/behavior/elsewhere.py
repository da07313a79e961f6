"""Code that runs in a process of its own, which has not run the test.

    python -m tests.unit.core.behavior.elsewhere FD

serves jobs on the connection FD, each in a new process: the server has nbagent and the modules of the
job's code loaded, reads a job without decoding it, and forks. A job is code and data, written by
cloudpickle. Objects that the code changes in that process (a log, a counter, a model's steps) are
copied back in place.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import traceback
import types
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, TypeAlias

import cloudpickle

import nbagent as nb
from nbagent.core.base.messages import FrozenDict, FrozenList

ROOT = Path(__file__).parents[4]
PATIENCE = 60
"""Seconds after which a running job is killed, which is an error."""

Work: TypeAlias = Callable[[Any, str], Coroutine[Any, Any, str]]
"""The work of a job: it gets the job's code and a JSON text, and returns a JSON text."""


class Elsewhere:
    """Runs jobs, each in a process of its own; close it at the end."""

    def __init__(self) -> None:
        self._connection, there = Pipe()
        with there:
            self._server = subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(there.fileno())],
                cwd=ROOT,
                pass_fds=[there.fileno()],
            )

    def run(self, work: Work, code: Any, data: Any) -> Any:
        """Run ``work`` in a new process, with this code, and data as JSON; return the JSON result.

        Raises:
            BaseException: the error that ``work`` raised.
        """
        things = list(_things(code))
        modules = {thing.__module__ for thing in things if hasattr(thing, "__qualname__")}
        job = _dumps((work, code, things, json.dumps(data)), [])
        self._connection.send([name for name in modules if name.startswith("tests.")])
        self._connection.send_bytes(job)
        reply = _Unpickler(io.BytesIO(self._connection.recv_bytes()), things).load()
        for thing, inside in zip(things, reply.contents, strict=False):
            _replace_contents(thing, inside)
        if reply.error is not None:
            raise reply.error from reply.cause
        return json.loads(reply.data)

    def close(self) -> None:
        """End the server; the processes of its jobs have ended by then."""
        self._connection.close()
        with self._server:
            self._server.wait(PATIENCE)


@dataclass(frozen=True)
class Done:
    """The outcome of a job: the contents of its objects, and its result or error."""

    contents: list[Any]
    data: str = "null"
    error: BaseException | None = None
    cause: BaseException | None = None


# --- in the server


def serve(connection: Connection) -> None:
    """Run each job in a fork, until the other side closes the connection."""
    importlib.import_module("nbagent.stores.sqlite")
    asyncio.run(_warm_up())
    while True:
        try:
            new = {*connection.recv()} - sys.modules.keys()
            job = connection.recv_bytes()
        except EOFError:
            return
        for name in new:
            importlib.import_module(name)
        if new:
            gc.collect()
            gc.freeze()
        pid = os.fork()
        if pid == 0:
            signal.alarm(PATIENCE)  # also if the caller is gone
            connection.send_bytes(_done(job))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status:
            lost = RuntimeError(f"the other process was ended by signal {status & 127}")
            connection.send_bytes(_dumps(Done([], error=lost), []))


async def _warm_up() -> None:
    """Have nbagent load its lazy parts once, before the forks."""
    call = nb.ScriptedModel.call
    agent = nb.Agent(nb.ScriptedModel([[call("ask"), call("wonder")], "done"]))
    agent.add(nb.interrupt_tool("ask", output=str))
    agent.tool(approval=True)(wonder)
    paused = await agent.generate("go")
    ask, approval = agent.interrupts(json.loads(json.dumps(paused.messages)))
    answers = {"tool_responses": [ask.respond("b")], "tool_restarts": [approval.restart()]}
    paused = await agent.generate(messages=paused.messages, **answers)
    answers = {"tool_responses": [paused.interrupts[0].respond("b")]}
    await agent.generate(messages=paused.messages, **answers)


async def wonder(ctx: nb.ToolContext) -> str:
    """Ask at a line."""
    return await ctx.ask("well?")


def _done(job: bytes) -> bytes:
    """Do one job; warnings and unraisable errors are errors."""
    unraisable: list[str] = []
    sys.unraisablehook = lambda failed: unraisable.append(
        f"{failed.exc_value!r} ({failed.err_msg})"
    )
    warnings.simplefilter("error")
    try:
        work, code, things, data = pickle.loads(job)
        try:
            given, error = asyncio.run(work(code, data)), None
        except BaseException as raised:
            given, error = "null", raised
        gc.collect()
        if unraisable:
            error = RuntimeError(f"in the other process: {unraisable}")
        contents = [_contents(thing) for thing in things]
        cause = None if error is None else error.__cause__
        return _dumps(Done(contents, given, error, cause), things)
    except BaseException:
        told = RuntimeError(f"in the other process: {traceback.format_exc()}")
        return _dumps(Done([], error=told), [])


# --- the objects in a job's code


def _things(code: Any) -> Iterator[Any]:
    """The functions, local classes and mutable objects in a job's code, each once."""
    seen: set[int] = set()
    todo = [code]
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        changes = _contents(thing)
        if changes is not None or isinstance(thing, types.FunctionType | type):
            yield thing
        todo += _parts(thing) if changes is None else _values(changes)


def _parts(thing: Any) -> Iterable[Any]:
    """The parts of an immutable object."""
    match thing:
        case types.FunctionType():
            return [*(thing.__closure__ or ()), *(thing.__defaults__ or ())]
        case types.MethodType():
            return [thing.__self__, thing.__func__]
        case tuple() | frozenset():
            return thing
        case _ if is_dataclass(thing):
            return [getattr(thing, field.name) for field in fields(thing)]
    return ()


def _values(contents: Any) -> Iterable[Any]:
    return contents.values() if isinstance(contents, dict) else contents


def _contents(thing: Any) -> Any:
    """The contents of a mutable object: a list, or a dict of items or attributes; else None."""
    match thing:
        case types.CellType():
            return _inside(thing)
        case FrozenDict() | FrozenList():
            return None
        case list() | set() | deque():
            return list(thing)
        case dict() if type(thing) is dict:
            return dict(thing)
        case nb.ScriptedModel():
            return dict(vars(thing))
        case _ if type(thing).__module__.startswith("tests.") and hasattr(thing, "__dict__"):
            return dict(vars(thing))
    return None


def _inside(cell: types.CellType) -> list[Any]:
    """A variable's value in a list; without a value, an empty list."""
    with suppress(ValueError):
        return [cell.cell_contents]
    return []


def _replace_contents(thing: Any, inside: Any) -> None:
    """Replace an object's contents with those of the other process."""
    match thing, inside:
        case _, None:
            pass
        case types.CellType(), [value]:
            thing.cell_contents = value
        case list(), list():
            thing[:] = inside
        case ((set() | deque()), list()):
            thing.clear()
            thing.extend(inside) if isinstance(thing, deque) else thing.update(inside)
        case dict(), dict():
            thing.clear()
            thing.update(inside)
        case _, dict():
            vars(thing).clear()
            vars(thing).update(inside)


def _function(module: str, *made_of: Any) -> types.FunctionType:
    """A function that was defined inside another one; its globals are its module's."""
    code, name, defaults, closure = made_of
    names = vars(importlib.import_module(module))
    return types.FunctionType(code, names, name, defaults, closure)


def _fill(cell: types.CellType, inside: list[Any]) -> None:
    for value in inside:
        cell.cell_contents = value


class _Pickler(cloudpickle.Pickler):
    """Writes ``things`` as their numbers, interrupts without their tools, functions with all names.

    cloudpickle alone leaves out globals that only annotations name, and copies a variable that
    functions share.
    """

    def __init__(self, file: io.BytesIO, things: list[Any]) -> None:
        super().__init__(file)
        self._things = {id(thing): number for number, thing in enumerate(things)}

    def persistent_id(self, obj: Any) -> int | None:
        return self._things.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, nb.PendingInterrupt) and obj._tool is not None:
            return replace(obj, _tool=None).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        if isinstance(obj, types.CellType):
            return types.CellType, (), _inside(obj), None, None, _fill
        if isinstance(obj, types.FunctionType) and "<" in obj.__qualname__:
            made_of = (obj.__code__, obj.__name__, obj.__defaults__, obj.__closure__)
            own = {"__qualname__": obj.__qualname__, "__kwdefaults__": obj.__kwdefaults__}
            own |= {"__doc__": obj.__doc__, "__annotations__": obj.__annotations__, **vars(obj)}
            return _function, (obj.__module__, *made_of), (None, own)
        return super().reducer_override(obj)


class _Unpickler(pickle.Unpickler):
    """Reads numbers as ``things`` of this process."""

    def __init__(self, file: io.BytesIO, things: list[Any]) -> None:
        super().__init__(file)
        self._things = things

    def persistent_load(self, pid: int) -> Any:
        return self._things[pid]


def _dumps(value: Any, things: list[Any]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, things).dump(value)
    return file.getvalue()


if __name__ == "__main__":
    from tests.unit.core.behavior import elsewhere  # the module that jobs name, and not __main__

    elsewhere.serve(Connection(int(sys.argv[1])))
