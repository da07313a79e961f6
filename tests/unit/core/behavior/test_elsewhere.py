"""Jobs in another process, which has not run the test; their changes are copied back."""

from __future__ import annotations

import json
import os
import signal
import warnings
from typing import Any

import pytest

import nbagent as nb

seen = ["imported"]


async def look(code: Any, data: str) -> str:
    """Change the job's objects; return facts of the process."""
    define, log, counts = code
    log.append(define())
    counts["n"] += 1
    return json.dumps([os.getpid(), list(seen), data])


async def fail(code: Any, _data: str) -> str:
    """Change the log, then raise as a run does."""
    code.append("changed")
    error = nb.errors.RunError("no luck", messages=[{"role": "user"}])
    raise error from ValueError("the cause")


async def die(_code: Any, _data: str) -> str:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


async def warn(_code: Any, _data: str) -> str:
    """Emit a warning."""
    warnings.warn("deprecated", DeprecationWarning, stacklevel=1)
    return "null"


def test_code_is_sent_to_a_process_and_changed_variables_return(elsewhere):
    """A closure, its variable, a list and a dict; module globals are those of a fresh import."""
    count, log, counts = 0, [], {"n": 0}

    def define() -> int:
        nonlocal count
        count += 1
        log.append("from inside")
        return count

    seen.append("changed by the test")
    try:
        pid, there, data = elsewhere.run(look, (define, log, counts), {"k": [1]})
    finally:
        seen.pop()
    assert pid != os.getpid()
    assert (there, json.loads(data)) == (["imported"], {"k": [1]})
    assert (count, log, counts) == (1, ["from inside", 1], {"n": 1})
    assert elsewhere.run(look, (define, log, counts), None)[0] != pid
    assert (count, log[2:], counts) == (2, ["from inside", 2], {"n": 2})


def test_an_error_raised_in_the_process_is_raised_here(elsewhere):
    """The error keeps its type, text, attributes and cause; earlier changes are copied."""
    log: list[str] = []
    with pytest.raises(nb.errors.RunError, match="no luck") as caught:
        elsewhere.run(fail, log, None)
    assert caught.value.messages == ({"role": "user"},)
    assert repr(caught.value.__cause__) == "ValueError('the cause')"
    assert log == ["changed"]


def test_a_process_that_is_killed_or_warns_is_an_error(elsewhere):
    """The next job gets a new process."""
    with pytest.raises(RuntimeError, match="ended by signal 9"):
        elsewhere.run(die, None, None)
    with pytest.raises(DeprecationWarning, match="deprecated"):
        elsewhere.run(warn, None, None)
    assert elsewhere.run(look, (int, [], {"n": 0}), None)[1] == ["imported"]
