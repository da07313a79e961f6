"""``history=``: what a model receives of a long history. ``core/engine/sent_history.py`` shortens each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from nbagent.core.base.errors import UsageError
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.messages import Message
from nbagent.core.base.model import Model
from nbagent.core.hooks import hooks


@dataclass(frozen=True, slots=True, eq=False)
class KeptHistory:
    """The part of a history that a model receives. Made by ``nb.keep``."""

    turns: int | None = None
    tokens: int | None = None
    summary: Model | bool = False
    """The model that summarizes the turns that are left out; True for the agent's own."""
    refused: dict[str, int] = field(default_factory=dict, repr=False)
    """The tokens that each model is sent since its server refused more, by the model's name."""
    summaries: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    """Summaries by the model's name and the digest of the summarized messages."""


Returned: TypeAlias = Sequence[Any] | Awaitable[Sequence[Any]]
History: TypeAlias = KeptHistory | Callable[[Sequence[Message]], Returned] | None
"""None, ``nb.keep(…)``, or a function (maybe async) of the messages that returns the messages to send."""


@checks_keywords("nb.keep")
def keep(
    *, turns: int | None = None, tokens: int | None = None, summary: bool | str | Model = False
) -> KeptHistory:
    """Limit what the model receives of a long conversation: ``nb.Agent(…, history=nb.keep(tokens=100_000))``.

    If there is more, the oldest tool results are left out first, then the oldest turns, to three quarters of the
    limit. The newest turn is always sent whole, and so is the newest message of a person. If the model's server
    refuses a request for its length, also without a limit here, a shorter one is sent. The run stores everything.

    Args:
        turns: maximum number of turns (model responses with their tool results).
        tokens: maximum number of tokens of the messages, estimated: four bytes of text are one token.
        summary: True to replace the turns that are left out by a summary, written by the agent's model; or
            another model for it, such as ``"gpt-5-mini"``. The card shows each summary.

    Raises:
        UsageError: a limit is not an integer of at least 1, or ``summary`` is not a model.
    """
    for name, value in (("turns", turns), ("tokens", tokens)):
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(f"{name} must be an integer of at least 1, got {value!r:.80}")
    if isinstance(summary, str):
        summary = cast("Model", hooks.model_named(summary))
    elif not isinstance(summary, bool) and not hasattr(summary, "stream"):
        raise UsageError(f"summary must be True, False or a model, got {summary!r:.80}")
    return KeptHistory(turns, tokens, summary)


def checked_history(value: Any) -> Any:
    """Return a valid ``history=``.

    Raises:
        UsageError: ``value`` is neither ``nb.keep(…)`` nor a function.
    """
    is_function = callable(value) and not isinstance(value, type)
    if value is None or isinstance(value, KeptHistory) or is_function:
        return value
    raise UsageError(
        "history must be nb.keep(turns=…) or nb.keep(tokens=…), or a function that receives the messages and returns "
        f"those to send, got {value!r:.80}. To start a run on messages, pass messages= to agent.run"
    )
