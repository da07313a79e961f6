"""The output of a command: one document on standard output, errors on standard error, and the exit code."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import Conflict, InvalidAnswer, NbagentError, NotPending, UsageError

OK, FAILED, USAGE, NOTHING, CONFLICT = range(5)
LEFT = 130
"""The exit code if a person stops without an answer, as after Ctrl+C in any shell."""
EXIT_CODES = """\
exit codes:
  0  success
  1  failure
  2  the arguments are wrong, or an answer does not match
  3  there is no such run, or no matching open question
  4  the question was already answered, or its run has ended
  130  stopped without an answer (Ctrl+C or end of input)"""
_NAMES = ("ok", "failed", "usage", "not_found", "conflict")


class CommandError(Exception):
    """An error that ends a command; the message has the reason and what to do."""

    def __init__(self, message: str, code: int = FAILED, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.more = more
        """Further fields of the error's JSON."""


def code_of(error: Exception) -> int:
    """The exit code for an error."""
    if isinstance(error, CommandError):
        return error.code
    codes = {Conflict: CONFLICT, NotPending: NOTHING, UsageError: USAGE}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), FAILED)


def print_text(*texts: str, color: int | None = None) -> None:
    """Print text with control characters escaped. Of several texts, the second text has the color."""
    plain = [escaped(text) for text in texts]
    if color is not None and len(plain) > 1:
        plain[1] = f"\x1b[{color}m{plain[1]}\x1b[0m"
    print("".join(plain))


def print_aside(text: str, end: str = "\n") -> None:
    """Print text for the person at the terminal, on standard error, if anybody reads it."""
    if sys.stderr is None or getattr(sys.stderr, "closed", False):
        return
    with suppress(OSError):  # nobody reads the pipe
        sys.stderr.write(f"{escaped(text)}{end}")  # in one piece: other threads print too
        sys.stderr.flush()


def print_json(document: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(document, ensure_ascii=True, indent=2))


def print_error(error: Exception, *, as_json: bool) -> int:
    """Print an error on standard error, as JSON if ``as_json``; return the exit code."""
    code = code_of(error)
    if as_json:
        document: dict[str, Any] = {"error": _NAMES[code], "message": str(error), "exit_code": code}
        document |= error.more if isinstance(error, CommandError) else {}
        if isinstance(error, InvalidAnswer) and error.errors:
            document["fields"] = [
                {"at": list(e.get("loc", ())), "message": e["msg"]} for e in error.errors
            ]
        print(json.dumps(document, ensure_ascii=True, default=str), file=sys.stderr)
    else:
        print_aside(f"nbagent: {error}")
    return code


KNOWN = (CommandError, NbagentError)
"""The errors that a command prints in one line; any other error is a bug, and is printed with its traceback."""
