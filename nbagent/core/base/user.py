"""The person of a process, for the record of who answered."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from functools import cache

_NOBODY = ("expiry", "external", "idempotent=True", "middleware", "recording")
"""Sources of answers without a person, or with one whom this process cannot name."""


code_of_model: ContextVar[bool] = ContextVar("nbagent_code_of_model", default=False)
"""True while code of a model runs; its answers do not count as the person's."""


@cache
def this_user() -> str:
    """The person who runs this process: JupyterHub's user, else the operating system's.

    A page's claim about its person is ignored, and so are variables such as ``USER`` that are often set. If
    several people share one server, it is the one it was started for.
    """
    return os.environ.get("JUPYTERHUB_USER", "").strip()[:_MAX_LENGTH] or _system_user()


_MAX_LENGTH = 200


def user_behind(by: str) -> str:
    """The person of an action with this source, here and now; empty if there is none."""
    return "" if by in _NOBODY else this_user()


def is_answered_by_one(by: str) -> bool:
    """Whether a person or program answers with this source, not expiry or a tool's declaration."""
    return by not in _NO_ANSWER


_NO_ANSWER = ("expiry", "idempotent=True")


def is_somebody_else(user: str) -> bool:
    """Whether a record names a person other than the one of this process."""
    return user not in ("", this_user())


def named(by: str, user: str) -> str:
    """The source, with the person's name if it was another person."""
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
