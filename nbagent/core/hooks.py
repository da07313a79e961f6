"""The few places where a layer above core plugs in; the package's root and the notebook fill them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any


def _no_host() -> None:
    return None


def _no_model(name: str) -> Any:
    raise LookupError(f"Unknown model {name!r}. Import nbagent, or pass a Model")


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
    raise LookupError(f"Unknown store {place!r}. Import nbagent, or pass a Store")


def _as_it_is(model: Any) -> Any:
    return model


def _kept_nowhere(_model: Any) -> Any:
    return None


def _plainly(error: BaseException) -> list[str]:
    return traceback.format_exception(error)


def _no_export(_shown: Any, form: str) -> str:
    raise LookupError(f"Exporting a run as {form} needs nbagent's notebook package. Import nbagent")


def _call_ended(_output: Any) -> None:
    return None


def _no_inbox(_waiting: Any, _of: str, _answered: Any) -> Any:
    raise LookupError("batch.questions needs nbagent's notebook package. Import nbagent")


class Hooks:
    """One function of each kind, replaced by whoever knows better."""

    __slots__ = (
        "call_ended",
        "error_lines",
        "exported",
        "find_host",
        "in_place_of",
        "inbox_of",
        "kept_answers",
        "makes_form",
        "model_named",
        "pattern_in",
        "price_list",
        "schema_errors",
        "schema_misfit",
        "store_at",
        "unsearched_patterns",
    )

    def __init__(self) -> None:
        self.find_host: Callable[[], Any] = _no_host
        """The ``Host`` of the code that runs now; None where it is a plain script."""
        self.inbox_of: Callable[[Any, str, Any], Any] = _no_inbox
        """What waits, of what, as an object that people hold; told of answers that it has given."""
        self.model_named: Callable[[str], Any] = _no_model
        """The model that a name such as ``"gpt-5"`` stands for."""
        self.price_list: Callable[[], str] = _no_prices
        """Where prices of models were looked for, as the end of a sentence that says that there is none."""
        self.in_place_of: Callable[[Any], Any] = _as_it_is
        """What an agent gets for the model, or the name, that it was given."""
        self.kept_answers: Callable[[Any], Any] = _kept_nowhere
        """The ``KeptAnswers`` of runs with this model (None for a flow's); None where there are none."""
        self.schema_errors: Callable[..., list[dict[str, Any]]] = _no_errors
        """What a JSON Schema has against an answer, as ``InvalidAnswer.errors`` has it; ``formats=True`` where it
        was made of a type, so that a date must be one."""
        self.schema_misfit: Callable[..., str] = _no_misfit
        """Why a JSON Schema cannot be used (``as_input=``: as that of an input); empty where it can."""
        self.pattern_in: Callable[[str, str], bool | None] = _not_searched
        """Whether a pattern of a schema is in a text; None where that is not searched for."""
        self.unsearched_patterns: Callable[[Any], list[str]] = _no_patterns
        """The patterns of a JSON Schema that are not searched for."""
        self.error_lines: Callable[[BaseException], list[str]] = _plainly
        """An error of ours as a notebook shows it."""
        self.makes_form: Callable[[], bool] = bool
        """Whether the schema that is made now is a form's, and not what a model is told."""
        self.exported: Callable[[Any, str], str] = _no_export
        """A run, or a chat, as one document: its HTML, Markdown, or notebook as JSON."""
        self.store_at: Callable[[str], Any] = _no_store
        """The store at a path, or at a database's URL."""
        self.call_ended: Callable[[Any], None] = _call_ended
        """Told of the ``CallOutput`` of a body that has ended, while it still takes what is left."""


hooks = Hooks()
