"""Functions that upper layers provide to core. The package's root and the notebook layer set them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any


def _no_host() -> None:
    return None


def _no_model(name: str) -> Any:
    raise LookupError(f"Unknown model {name!r}. Run `import nbagent` first, or pass a Model")


def _no_errors(_schema: Any, _value: Any) -> list[dict[str, Any]]:
    return []


def _no_misfit(_schema: Any, *, as_input: bool) -> str:
    del as_input
    return ""


def _not_searched(_pattern: str, _text: str) -> bool | None:
    return None


def _no_patterns(_schema: Any) -> list[str]:
    return []


def _no_prices() -> str:
    return ""


def _no_store(place: str) -> Any:
    raise LookupError(f"Unknown store {place!r}. Run `import nbagent` first, or pass a Store")


def _as_it_is(model: Any) -> Any:
    return model


def _kept_nowhere(_model: Any) -> Any:
    return None


def _plainly(error: BaseException) -> list[str]:
    return traceback.format_exception(error)


def _no_export(_shown: Any, form: str) -> str:
    raise LookupError(
        f"Exporting a run as {form} needs nbagent's notebook package. Run `import nbagent` first"
    )


def _call_ended(_output: Any) -> None:
    return None


def _no_inbox(_waiting: Any, _of: str) -> Any:
    raise LookupError(
        "batch.questions needs nbagent's notebook package. Run `import nbagent` first"
    )


class Hooks:
    """Functions of upper layers, each with a default."""

    __slots__ = (
        "answer_recording_of",
        "call_ended",
        "error_lines",
        "exported",
        "find_host",
        "inbox_of",
        "makes_form",
        "model_named",
        "pattern_in",
        "price_list",
        "recorded_or_same",
        "schema_errors",
        "schema_misfit",
        "store_at",
        "unsearched_patterns",
    )

    def __init__(self) -> None:
        self.find_host: Callable[[], Any] = _no_host
        """The ``Host`` of the current code; None in a plain script."""
        self.inbox_of: Callable[[Any, str], Any] = _no_inbox
        """The open questions as a public object; the second argument is the id of the batch that has them."""
        self.model_named: Callable[[str], Any] = _no_model
        """The model for a name such as ``"gpt-5"``."""
        self.price_list: Callable[[], str] = _no_prices
        """The place where prices were looked up, as the end of a sentence about a missing price."""
        self.recorded_or_same: Callable[[Any], Any] = _as_it_is
        """The model to use in place of the passed model or name; normally the passed one."""
        self.answer_recording_of: Callable[[Any], Any] = _kept_nowhere
        """The ``AnswerRecording`` of runs with this model (pass None for a flow), or None."""
        self.schema_errors: Callable[..., list[dict[str, Any]]] = _no_errors
        """Errors of an answer against a JSON Schema, as in ``InvalidAnswer.errors``; ``formats=True`` if the
        schema was made from a type, so that a date must be valid."""
        self.schema_misfit: Callable[..., str] = _no_misfit
        """The reason why a JSON Schema cannot be used (``as_input=``: for an input); empty if it can."""
        self.pattern_in: Callable[[str, str], bool | None] = _not_searched
        """True if a pattern of a schema matches a text; None if the pattern is unsupported or too heavy."""
        self.unsearched_patterns: Callable[[Any], list[str]] = _no_patterns
        """The patterns of a JSON Schema that are unsupported or too heavy, and so never checked."""
        self.error_lines: Callable[[BaseException], list[str]] = _plainly
        """The lines of an nbagent error, as a notebook shows it."""
        self.makes_form: Callable[[], bool] = bool
        """True if the current schema is for a form, not for a model."""
        self.exported: Callable[[Any, str], str] = _no_export
        """A run, or a chat, as one document: its HTML, Markdown, or notebook as JSON."""
        self.store_at: Callable[[str], Any] = _no_store
        """The store at a path, or at a database's URL."""
        self.call_ended: Callable[[Any], None] = _call_ended
        """Called when a body ends, with its ``CallOutput``, to which remaining output can still be added."""


hooks = Hooks()
