"""Execute a notebook with its models recorded or replayed: ``nbagent record`` and ``nbagent replay``."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nbagent.core.base.errors import NbagentError
from nbagent.core.base.private import write_private
from nbagent.core.run.session import all_sessions
from nbagent.models.recorded.environment import ANSWERS, RECORD, REPLAY, process_recording, unused
from nbagent.models.recorded.exchange import answer_in_words, exchange_in_words
from nbagent.models.recorded.recording import Recording, load
from nbagent.models.recorded.replay import MAX_LISTED

SUFFIX = ".recorded.json"
LAST_WORDS = 4000
"""Bytes of a dead kernel's last output in the error message."""
NEEDED = ("nbclient", "nbformat", "ipykernel")
MISSING = (
    "To execute a notebook, this Python ({python}) needs {names}. Install with:\n  {python} -m pip install "
    '"jupyter-nbagent[demo]"'
)

UNUSED = (
    "All cells ran, but there were fewer requests or questions than in the recording: a cell, a tool or an "
    "approval was removed, or code now answers an approval. Restore it, or record the notebook again: nbagent "
    "record {notebook}"
)


class PlaybackError(NbagentError):
    """An error while a notebook is recorded or replayed; the message has the place, the reason and what to do."""


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """The numbers of exchanges and answers in a recording, and of secrets that were removed from it."""

    exchanges: int
    answers: int
    scrubbed: Mapping[str, int]
    """The number of secrets that were removed, by where they came from, such as a variable's name."""


def recording_beside(notebook: Path) -> Path:
    """The default path of a notebook's recording."""
    return notebook.with_name(notebook.stem + SUFFIX)


def record(
    notebook: Path, recording: Path, *, answers: Path | None, output: Path | None, timeout: int
) -> RecordingSummary | None:
    """Execute a notebook and record its models and ``answers``.

    An earlier recording is replaced only after the notebook has ended.

    Args:
        notebook: the notebook; it is not changed.
        recording: the file to write.
        answers: a JSON file with the answers to questions.
        output: where to write the executed notebook.
        timeout: seconds that a cell may take.

    Returns:
        A summary of the recording; None if the notebook called no model, or only models that it records itself.

    Raises:
        PlaybackError: a cell failed, a file cannot be read or written, or models were called and none answered.
    """
    draft = recording.with_name(recording.name + ".draft")
    variables = {RECORD: str(draft.absolute())}
    if answers is not None:
        variables[ANSWERS] = str(answers.absolute())
    try:
        draft.unlink(missing_ok=True)
        done, reported = _executed(notebook, variables, timeout)
        if draft.exists():
            summary = _summary_of(draft)
            draft.replace(recording)
        else:
            _check_answered(reported["failed"])
            summary = None
    except OSError as error:
        raise PlaybackError(f"Cannot write {str(recording)!r}: {error}") from error
    except PlaybackError as error:
        raise PlaybackError(f"{error}{_exchanges_listing(draft)}") from error
    finally:
        draft.unlink(missing_ok=True)
    _write(done, output)  # last: if this fails, the recording exists
    return summary


def replay(notebook: Path, recording: Path, *, output: Path | None, timeout: int) -> None:
    """Execute a notebook from its recording: no model is called, no key is needed.

    Args:
        notebook: the notebook; it is not changed, unless ``output`` is the same file.
        recording: the file to replay.
        output: where to write the executed notebook.
        timeout: seconds that a cell may take.

    Raises:
        PlaybackError: a cell failed, for example because a request was not recorded; or a recorded entry was
            not used.
    """
    done, reported = _executed(notebook, {REPLAY: str(recording.absolute())}, timeout)
    if reported["unused"]:
        raise PlaybackError("\n".join([*reported["unused"], UNUSED.format(notebook=notebook)]))
    _write(done, output)


async def report(path: str) -> None:
    """Wait until all runs of the notebook's kernel settle, then write the report that ``_executed`` reads.

    The last cell (``REPORT``) calls this function. The report lists the entries that a replay did not use, and
    the errors of failed requests of a recording.
    """
    while unsettled := [one for one in all_sessions() if not one.is_settled()]:
        await asyncio.wait([asyncio.wrap_future(one.when_settled()) for one in unsettled])
    recording = process_recording(if_exists=True)
    failed = recording.failed if isinstance(recording, Recording) else []
    write_private(Path(path), json.dumps({"unused": unused(), "failed": failed}))


def _check_answered(failed: Sequence[str]) -> None:
    """Raise if there is no recording because models were called and none answered."""
    if failed:
        raise PlaybackError(
            f"Nothing was recorded, because the model answered no request. The last error: {failed[-1]}"
        )


REPORT = "import nbagent.playback as _playback\nawait _playback.report({path!r})"
"""The code that is executed after the last cell."""


def _executed(
    notebook: Path, variables: Mapping[str, str], timeout: int
) -> tuple[Any, dict[str, list[str]]]:
    """Execute the notebook; return the executed notebook, and the report made after the last cell."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise PlaybackError(MISSING.format(names=" and ".join(missing), python=sys.executable))
    import nbformat  # noqa: PLC0415  an extra, loaded late
    from jupyter_client.kernelspec import KernelSpecManager  # noqa: PLC0415  as above
    from jupyter_client.manager import AsyncKernelManager  # noqa: PLC0415  as above
    from nbclient import NotebookClient  # noqa: PLC0415  as above
    from nbclient.exceptions import (  # noqa: PLC0415  as above
        CellExecutionError,
        CellTimeoutError,
        DeadKernelError,
    )

    try:
        content = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise PlaybackError(f"Cannot read {str(notebook)!r} as a notebook: {error}") from error
    executed: list[Any] = []
    manager = AsyncKernelManager(
        kernel_name="python3",
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),  # the kernel uses this Python
    )
    client = NotebookClient(
        content,
        km=manager,
        timeout=timeout,
        record_timing=False,
        resources={"metadata": {"path": str(notebook.absolute().parent)}},
        extra_arguments=["--log-level=ERROR"],  # else a kernel warns that loopback is not encrypted
        on_cell_execute=lambda cell, **_more: executed.append(cell),
    )
    client.owns_km = True  # so that the client stops the kernel
    kept = {k: v for k, v in os.environ.items() if k not in (RECORD, REPLAY, ANSWERS)}
    with (
        tempfile.TemporaryFile() as stderr_file,  # the kernel's last output is used only if it dies
        tempfile.TemporaryDirectory() as folder,
    ):
        path = Path(folder) / "report.json"
        last = nbformat.v4.new_code_cell(REPORT.format(path=str(path)))  # type: ignore[no-untyped-call]
        content.cells.append(last)
        try:
            client.execute(env={**kept, **variables}, stderr=stderr_file)
        except CellExecutionError as error:
            cell = executed[-1]
            message = _failure_message(content, cell, _shown_error(cell) or error)
            raise PlaybackError(message) from error
        except CellTimeoutError as error:
            subject = "A run that no cell awaits" if executed[-1] is last else "A cell"
            raise PlaybackError(
                f"{subject} took more than {timeout} s. Allow more time with --timeout"
            ) from error
        except (DeadKernelError, RuntimeError) as error:  # RuntimeError during startup
            raise PlaybackError(f"The kernel died{_last_words(stderr_file)}") from error
        content.cells.pop()
        reported: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    # some ipykernel versions report no failure if an error occurs while a value is displayed
    for cell in executed:
        found = _shown_error(cell)
        if found is not None and "raises-exception" not in cell.metadata.get("tags", ()):
            raise PlaybackError(_failure_message(content, cell, found))
    return content, reported


def _last_words(stderr_file: IO[bytes]) -> str:
    """The end of a kernel's own stderr."""
    stderr_file.seek(max(0, stderr_file.seek(0, os.SEEK_END) - LAST_WORDS))
    text = stderr_file.read().decode(errors="replace").strip()
    return f". Its output:\n{text}" if text else ""


def _shown_error(cell: Any) -> Any | None:
    """The last error among a cell's outputs; the kernel's reply omits errors of displaying a value."""
    return next((o for o in reversed(cell.outputs) if o.output_type == "error"), None)


def _failure_message(content: Any, cell: Any, error: Any) -> str:
    """The message for a failed cell: its error, and what to do."""
    code = [each for each in content.cells if each.cell_type == "code"]
    number = next(n for n, each in enumerate(code, 1) if each is cell)
    text = f"Code cell {number} failed: {error.ename}: {error.evalue}"
    if error.ename == "HumanInputRequired":
        text += (
            "\nPass the answers with --answers ANSWERS.json: a list in the order of the questions, or an object by "
            f'tool name, such as {{"transfer": true, "ask_person": "blue"}}. Or answer in the forms: set {RECORD} to '
            "the path of the recording, start JupyterLab, and run the notebook there."
        )
    return text


def _write(content: Any, output: Path | None) -> None:
    """Write an executed notebook.

    Raises:
        PlaybackError: the file cannot be written.
    """
    if output is None:
        return
    import nbformat  # noqa: PLC0415  an extra, loaded late

    text: str = nbformat.writes(content)  # type: ignore[no-untyped-call]
    try:
        write_private(output, f"{text}\n", keep_rights=True)
    except OSError as error:
        raise PlaybackError(f"Cannot write {str(output)!r}: {error}") from error


def _exchanges_listing(draft: Path) -> str:
    """A listing of the last exchanges and answers before a cell failed; empty without a draft recording."""
    if not draft.exists():
        return ""
    entries = list(enumerate(load(draft), 1))
    lines = [
        exchange_in_words(n, e) if "request" in e else answer_in_words(n, e) for n, e in entries
    ]
    more = [f"… {len(lines) - MAX_LISTED} earlier"] if len(lines) > MAX_LISTED else []
    listing = "\n".join(f"- {line}" for line in [*more, *lines[-MAX_LISTED:]])
    return f"\nThese questions were asked and answered before that; nothing was saved:\n{listing}"


def _summary_of(path: Path) -> RecordingSummary:
    """The numbers of exchanges, answers and removed secrets in a recording."""
    found = json.loads(path.read_text(encoding="utf-8"))
    exchanges = sum("request" in entry for entry in found["session"])
    return RecordingSummary(exchanges, len(found["session"]) - exchanges, found["scrubbed"])
