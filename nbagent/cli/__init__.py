"""The ``nbagent`` command."""

from .parser import main

__all__ = ["main"]
