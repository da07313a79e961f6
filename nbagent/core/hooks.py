"""Functions that upper layers provide to core. The package's root and the notebook layer set them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class Hooks:
    """Functions of upper layers. The package's root sets all of them before any other module can call one."""

    find_host: Callable[[], Any]
    """The ``Host`` of the current code; None in a plain script."""
    script_ended: Callable[..., None]
    """Called once the main module has ended: finishes what nothing waits for; ``is_last=True``: only names it."""
    asks_in_terminal: Callable[[Any, Any], None]
    """Wait for a future of a run, and ask the run's questions in the terminal."""
    awaits_in_terminal: Callable[[Any, Any], Awaitable[None]]
    """Await a future of a run, and ask the run's questions in the terminal meanwhile."""
    asks_outside_in_terminal: Callable[[Any, str, str], Awaitable[Any]]
    """Ask in the terminal outside of any call: the type of the answer, the question, and a page to open first."""
    asks_rows_in_terminal: Callable[[Any], bool]
    """Ask the questions of a batch's rows in the terminal; returns whether the person answered all."""
    follows_in_terminal: Callable[[Any], None]
    """Print each new status of a run in the terminal."""
    talks_in_terminal: Callable[[Any], None]
    """Read the messages of a chat in the terminal, and print its answers."""
    fills_in_terminal: Callable[[Any], Any]
    """The answer to a ``Question`` that belongs to no run, asked in the terminal."""
    inbox_of: Callable[[Any, str], Any]
    """The open questions as a public object; the second argument is the id of the batch that has them."""
    model_named: Callable[[str], Any]
    """The model for a name such as ``"gpt-5"``."""
    recorded_or_same: Callable[[Any], Any]
    """The model to use in place of the passed model or name; normally the passed one."""
    answer_recording_of: Callable[[Any], Any]
    """The ``AnswerRecording`` of runs with this model (pass None for a flow), or None."""
    schema_errors: Callable[..., list[dict[str, Any]]]
    """Errors of an answer against a JSON Schema, as in ``InvalidAnswer.errors``; ``formats=True`` if the
    schema was made from a type, so that a date must be valid."""
    schema_misfit: Callable[..., str]
    """The reason why a JSON Schema cannot be used (``as_input=``: for an input); empty if it can."""
    pattern_in: Callable[[str, str], bool | None]
    """True if a pattern of a schema matches a text; None if the pattern is unsupported or too heavy."""
    unsearched_patterns: Callable[[Any], list[str]]
    """The patterns of a JSON Schema that are unsupported or too heavy, and so never checked."""
    error_lines: Callable[[BaseException], list[str]]
    """The lines of an nbagent error, as a notebook shows it."""
    makes_form: Callable[[], bool]
    """True if the current schema is for a form, not for a model."""
    exported: Callable[[Any, str], str]
    """A run, or a chat, as one document: its HTML, Markdown, or notebook as JSON."""
    reported: Callable[[Any, str], str]
    """A batch as one document: HTML or Markdown."""
    store_at: Callable[[str], Any]
    """The store at a path, or at a database's URL."""
    call_ended: Callable[[Any], None]
    """Called when a body ends, with its ``CallOutput``, to which remaining output can still be added."""

    browser_button: Callable[[], None]
    """Show the button that turns on the browser's notifications."""
    live_runs: tuple[Callable[[Any], None], ...]
    """Called with the ``Session`` of each run that starts or is opened; normally empty, as the next two."""
    generates: tuple[Callable[[Any, Any, Any], Any], ...]
    """Called with journal, ``RunSpec`` and coroutine of each ``generate``; the result is awaited in its place."""
    rows_elsewhere: tuple[Callable[[Any, Any], None], ...]
    """Called with journal and events of a batch's row that another process ran, whenever these were read."""

    def __init__(self) -> None:
        self.call_ended = lambda _output: None
        self.live_runs = self.generates = self.rows_elsewhere = ()


hooks = Hooks()
