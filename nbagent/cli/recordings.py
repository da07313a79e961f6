"""``nbagent record`` and ``nbagent replay``: notebooks executed, with what their models say kept in a file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .output import CommandError, tell


def record(options: argparse.Namespace) -> int:
    """Record a notebook and tell what was recorded; return the exit code.

    Raises:
        CommandError: a cell failed, or a file cannot be read or written.
    """
    from nbagent import playback  # noqa: PLC0415  (other commands do not need it)

    path = options.recording or playback.recording_beside(options.notebook)
    try:
        found = playback.record(
            options.notebook,
            path,
            answers=options.answers,
            output=options.output,
            timeout=options.timeout,
        )
    except playback.PlaybackError as error:
        raise CommandError(str(error)) from error
    if found is None:
        told = (
            "No model was asked, but for those that the notebook records itself (nb.RecordedModel), whose "
            'files say under "scrubbed" what was cut.'
        )
        if path.exists():
            told += f"\n{path} is of an earlier session, and nothing in it is asked any more: delete it."
    else:
        cut = ", ".join(f"{count} of {name}" for name, count in found.scrubbed.items())
        told = (
            f"Recorded {found.exchanges} exchanges and {found.answers} answers of people into {path}\n"
            f"Scrubbed: {cut or 'nothing'}. Read the file before you share it.\n"
            f"Replay it with: nbagent replay {options.notebook}"
        )
    tell(told)
    return 0


def replay(options: argparse.Namespace) -> int:
    """Replay a notebook; return the exit code.

    Raises:
        CommandError: a cell failed, as where a request was not recorded.
    """
    from nbagent import playback  # noqa: PLC0415  (other commands do not need it)

    path = options.recording or playback.recording_beside(options.notebook)
    try:
        playback.replay(options.notebook, path, output=options.output, timeout=options.timeout)
    except playback.PlaybackError as error:
        raise CommandError(str(error)) from error
    tell(f"Replayed {options.notebook}; no model was asked.")
    return 0


def add(commands: Any) -> None:
    """Add both commands to the parser."""
    for name, run, help_, description in _EXECUTING:
        command = commands.add_parser(name, help=help_, description=description)
        _add_playback(command)
        command.set_defaults(run=run)
        if name == "record":
            command.add_argument(
                "--answers",
                type=Path,
                metavar="FILE",
                help="JSON with the answers to what is asked: a list in the order of the questions, or an "
                "object by tool name; true approves, false refuses",
            )


_EXECUTING: tuple[tuple[str, Callable[[argparse.Namespace], int], str, str], ...] = (
    (
        "record",
        record,
        "execute a notebook and keep what its models and people say in a file",
        "Execute a notebook with its real models (keys as ever) and keep every request, answer and human answer in one "
        "readable file beside it, NOTEBOOK.recorded.json, with secrets cut. Questions are answered from --answers; to "
        "answer in forms, start JupyterLab with NBAGENT_RECORD=FILE set instead. An earlier recording is replaced at "
        "the end, and only if no cell failed.",
    ),
    (
        "replay",
        replay,
        "execute a notebook with what was recorded; needs no API key",
        "Execute a notebook with what `nbagent record` kept: no model is asked. A request that was not recorded fails "
        "with what differs, and so does what was recorded and is not asked any more (exit code 1). In CI and on Binder, NBAGENT_REPLAY=FILE does the same for nbval, nbconvert "
        "and JupyterLab.",
    ),
)


def _add_playback(command: argparse.ArgumentParser) -> None:
    command.add_argument("notebook", type=Path, metavar="NOTEBOOK")
    command.add_argument(
        "--recording", type=Path, metavar="FILE", help="default: NOTEBOOK.recorded.json"
    )
    command.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="where to write the executed notebook"
    )
    command.add_argument(
        "--timeout",
        type=int,
        default=600,
        metavar="SECONDS",
        help="that one cell may take; default 600",
    )
