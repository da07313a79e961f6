"""What a command says: one document on standard output, errors on standard error, and its exit code."""

from __future__ import annotations

import json
import sys
from typing import Any

from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import Conflict, InvalidAnswer, NbagentError, NotPending, UsageError

OK, FAILED, USAGE, NOTHING, CONFLICT = range(5)
LEFT = 130
"""The exit code where a person leaves without an answer, as after Ctrl+C in any shell."""
EXIT_CODES = """\
exit codes:
  0  success
  1  failure
  2  the arguments are wrong, or an answer does not match
  3  there is no such run, or no matching open question
  4  somebody else was first: the question is answered, or its run has ended
  130  a person left without an answer (Ctrl+C, the end of the input)"""
_NAMES = ("ok", "failed", "usage", "not_found", "conflict")


class CommandError(Exception):
    """A command cannot do what it was asked; the text says why and what to do."""

    def __init__(self, message: str, code: int = FAILED, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.more = more
        """What else the JSON of the error says."""


def code_of(error: Exception) -> int:
    """The exit code that tells of an error."""
    match error:
        case CommandError(code=code):
            return code
        case Conflict():
            return CONFLICT
        case NotPending():
            return NOTHING
        case UsageError():
            return USAGE
        case _:
            return FAILED


def tell(*texts: str, color: int | None = None) -> None:
    """Print text; controls of others are written out. Of several texts the second one has the color."""
    plain = [escaped(text) for text in texts]
    if color is not None and len(plain) > 1:
        plain[1] = f"\x1b[{color}m{plain[1]}\x1b[0m"
    print("".join(plain))


def tell_aside(text: str, end: str = "\n") -> None:
    """Print text on standard error, as what a command says to the person at the terminal."""
    print(escaped(text), end=end, file=sys.stderr, flush=True)


def tell_json(document: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(document, ensure_ascii=True, indent=2))


def tell_error(error: Exception, *, as_json: bool) -> int:
    """Print an error on standard error, as JSON where that is wanted; return the exit code."""
    code = code_of(error)
    if as_json:
        said: dict[str, Any] = {"error": _NAMES[code], "message": str(error), "exit_code": code}
        said |= error.more if isinstance(error, CommandError) else {}
        if isinstance(error, InvalidAnswer) and error.errors:
            said["fields"] = [
                {"at": list(e.get("loc", ())), "message": e["msg"]} for e in error.errors
            ]
        print(json.dumps(said, ensure_ascii=True, default=str), file=sys.stderr)
    else:
        tell_aside(f"nbagent: {error}")
    return code


KNOWN = (CommandError, NbagentError)
"""The errors that a command tells in a line; any other is a bug, with its traceback."""
