"""The parser of all commands, and what becomes of their errors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from nbagent import __version__

from . import demo, recordings
from .output import KNOWN, OK, tell_error

INTERRUPTED = 130
"""The exit code after Ctrl+C, as shells have it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = _parser().parse_args(argv)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except KNOWN as error:
        return tell_error(error, as_json=getattr(options, "json", False))
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nbagent", description="LLM agent runs as live notebook widgets."
    )
    parser.add_argument("--version", action="version", version=f"nbagent {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo.add(commands)
    recordings.add(commands)
    return parser
