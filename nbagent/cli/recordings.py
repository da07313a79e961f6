"""``nbagent record`` and ``nbagent replay``: execute notebooks, with their models' responses in a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .output import print_text


def record(options: argparse.Namespace) -> int:
    """Record a notebook and print a summary; return the exit code.

    Raises:
        PlaybackError: a cell failed, or a file cannot be read or written.
    """
    from nbagent import playback  # noqa: PLC0415  (other commands do not need it)

    path = options.recording or playback.recording_beside(options.notebook)
    found = playback.record(
        options.notebook,
        path,
        answers=options.answers,
        output=options.output,
        timeout=options.timeout,
    )
    if found is None:
        text = (
            "No model was called, except models that the notebook records itself (nb.RecordedModel). Each recording lists "
            'what was removed, under "scrubbed".'
        )
        if path.exists():
            text += f"\n{path} is from an earlier session and is no longer used. You can delete it."
    else:
        removed = ", ".join(f"{count} of {name}" for name, count in found.scrubbed.items())
        text = (
            f"Recorded {found.exchanges} exchanges and {found.answers} human answers in {path}\nScrubbed: {removed or 'nothing'}. "
            f"Read the file before you share it.\nReplay it with: nbagent replay {options.notebook}"
        )
        if options.recording is not None:
            text += f" --recording {options.recording}"
    print_text(text)
    return 0


def replay(options: argparse.Namespace) -> int:
    """Replay a notebook; return the exit code.

    Raises:
        PlaybackError: a cell failed, for example because a request was not recorded.
    """
    from nbagent import playback  # noqa: PLC0415  (other commands do not need it)

    path = options.recording or playback.recording_beside(options.notebook)
    playback.replay(options.notebook, path, output=options.output, timeout=options.timeout)
    print_text(f"Replayed {options.notebook}; no model was called.")
    return 0


def add(commands: Any) -> None:
    """Add both commands to the parser."""
    for run, help_, description in _EXECUTING:
        command = commands.add_parser(run.__name__, help=help_, description=description)
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
            help="seconds allowed for one cell; default 600",
        )
        command.set_defaults(run=run)
        if run is record:
            command.add_argument(
                "--answers",
                type=Path,
                metavar="FILE",
                help="JSON with the answers: a list in the order of the questions, or an object by tool name; true approves, "
                "false rejects",
            )


_EXECUTING = (
    (
        record,
        "execute a notebook and record its models and answers in a file",
        "Execute a notebook with its real models and your keys. All requests and answers of models and people are "
        "recorded in one readable file next to it, NOTEBOOK.recorded.json, without secrets. Questions are "
        "answered from --answers. To answer in forms, start JupyterLab with NBAGENT_RECORD=FILE set instead. An "
        "earlier recording is replaced at the end, and only if no cell failed.",
    ),
    (
        replay,
        "execute a notebook from its recording; needs no API key",
        "Execute a notebook with the recording of `nbagent record`: no model is called. A request that was not "
        "recorded fails and shows the difference. A recorded request that is no longer made also fails (exit code "
        "1). In CI and on Binder, NBAGENT_REPLAY=FILE does the same for nbval, nbconvert and JupyterLab.",
    ),
)
