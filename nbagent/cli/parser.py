"""The parser of all commands, and the handling of their errors."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from nbagent import __version__

from . import answering, archive, demo, recordings, runs
from .output import EXIT_CODES, KNOWN, LEFT, OK, CommandError, print_aside, print_error

_EXAMPLES = """\
examples:
  nbagent demo                      the quickstart, in JupyterLab
  nbagent runs --store runs.db      the runs of a store and their questions
  nbagent show 3f2a                 one run, by the first characters of its id
  nbagent answer 3f2a               answer its question in the terminal"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    if sys.stdout is None:  # the program that started this process closed it
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # characters that the encoding lacks are escaped
            stream.reconfigure(errors="backslashreplace")
    parser = argparse.ArgumentParser(
        prog="nbagent",
        description="LLM agent runs as live notebook widgets.",
        epilog=f"{_EXAMPLES}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"nbagent {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo.add(commands)
    recordings.add(commands)
    runs.add(commands)
    answering.add(commands, EXIT_CODES)
    archive.add(commands)
    options = parser.parse_args(argv)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except KNOWN as error:
        return print_error(error, as_json=getattr(options, "json", False))
    except KeyboardInterrupt:
        print_aside("")
        return LEFT
    except BrokenPipeError:  # the reader of the pipe has closed it
        _discard_output()
        return OK
    except OSError as error:  # a full disk, a file that cannot be written
        _discard_output()
        return print_error(CommandError(str(error)), as_json=getattr(options, "json", False))
    return code


def _discard_output() -> None:
    """Discard buffered standard output, so that writing it at exit raises no error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
