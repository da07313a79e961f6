"""The person a process works for: what an answer's record says of who gave it."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from functools import cache

_NOBODY = ("expiry", "external", "idempotent=True", "middleware", "recording")
"""Ways that an answer comes about without a person, or from one whom this process does not know."""


code_of_model: ContextVar[bool] = ContextVar("nbagent_code_of_model", default=False)
"""Whether a model wrote the code that runs now, which then answers in nobody's place."""


@cache
def this_user() -> str:
    """The person who runs this process: JupyterHub's user, else the operating system's.

    What a page says of itself is not asked, nor are variables that anybody sets by habit, as ``USER``. Where several
    people share one server, it is the one it was started for.
    """
    return os.environ.get("JUPYTERHUB_USER", "").strip()[:_LONGEST] or _system_user()


_LONGEST = 200


def user_behind(by: str) -> str:
    """Who did what is done in this way, here and now; empty where nobody did."""
    return "" if by in _NOBODY else this_user()


def is_answered_by_one(by: str) -> bool:
    """Whether somebody answers in this way, and not the end of a question's time or what its tool declares."""
    return by not in _NO_ANSWER


_NO_ANSWER = ("expiry", "idempotent=True")


def is_somebody_else(user: str) -> bool:
    """Whether a record names a person, and another one than who runs this process."""
    return user not in ("", this_user())


def named(by: str, user: str) -> str:
    """The way, and where it was somebody else also the person."""
    return f"{by} ({user})" if is_somebody_else(user) else by


def _system_user() -> str:
    if sys.platform == "win32":
        try:
            return os.getlogin()
        except OSError:  # a service has none
            return ""
    if sys.platform == "emscripten":  # a web page: who looks at it has no name
        return ""
    import pwd  # noqa: PLC0415 - Windows has none

    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # as in a container that runs under any number
        return f"uid {number}"
