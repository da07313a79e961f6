"""The person who runs a process, to record who answered."""

from __future__ import annotations

import os
import sys
from functools import cache

_NOBODY = ("expiry", "external", "idempotent=True", "middleware", "recording")
"""Sources of answers without a person, or with one whom this process cannot name."""


@cache
def this_user() -> str:
    """The person who runs this process: JupyterHub's user, else the operating system's.

    A page's claim about its person is ignored, and so are variables such as ``USER``, which are easy to set. If
    several people share one server, the result is the person for whom the server was started.
    """
    return os.environ.get("JUPYTERHUB_USER", "").strip()[:_MAX_LENGTH] or _system_user()


_MAX_LENGTH = 200


def user_behind(by: str) -> str:
    """The person of this process, if a person is behind an action with this source; else empty."""
    return "" if by in _NOBODY else this_user()


def is_person_or_program(by: str) -> bool:
    """Whether a source is a person or program, and not expiry or a tool's declaration."""
    return by not in _NO_ANSWER


_NO_ANSWER = ("expiry", "idempotent=True")


def is_somebody_else(user: str) -> bool:
    """Whether a record names another person than the person of this process."""
    return user not in ("", this_user())


def named(by: str, user: str) -> str:
    """The source of an answer, with the person's name if it is not the person of this process."""
    return f"{by} ({user})" if is_somebody_else(user) else by


def _system_user() -> str:
    if sys.platform == "win32":
        try:
            return os.getlogin()
        except OSError:  # a service has no login name
            return ""
    if sys.platform == "emscripten":  # a web page, whose reader has no name
        return ""
    import pwd  # noqa: PLC0415 - Windows has none

    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # as in a container that runs under any user id
        return f"uid {number}"
