"""Numbers, money and durations as text; ``frontend/format.js`` writes durations in the same way."""

from __future__ import annotations

from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import CardHead, Count

ENDED = ("completed", "failed", "cancelled")
NEAR = 4
"""A run that goes on names its limit of turns once only a fourth of them is left."""


def count(key: str, number: int) -> str:
    """The number with a noun, from the text of this key; empty for zero."""
    text = TEXTS[f"{key}_one" if number == 1 else key]
    return text.format(n=f"{number:,}") if number else ""


def cost(head: CardHead) -> str:
    """The known cost; empty if none is known."""
    template = TEXTS["cost_known" if head.cost is None else "cost"]
    return template.format(n=money(head.known_cost)) if head.known_cost > 0 else ""


def decided(head: CardHead) -> str:
    """The number of decisions by people, and of decisions by you; empty if there are none."""
    if head.decisions == head.decisions_by_you:
        return count("decisions_by_you", head.decisions)
    text = count("decisions", head.decisions)
    yours = head.decisions_by_you
    return TEXTS["decisions_some"].format(said=text, n=f"{yours:,}") if yours else text


def counted(head: CardHead) -> CardHead:
    """The head with all its counts in words, as the footer of a live card has them."""
    turns, left = count("turns", head.turns if head.max_turns else 0), head.max_turns - head.turns
    if turns and head.status not in ENDED and left * NEAR <= head.max_turns:
        turns = TEXTS["turns_of"].format(n=head.turns, m=head.max_turns)
    token_counts = [("cached", head.cached), ("reasoned", head.reasoning)]
    about = ", ".join(TEXTS[key].format(n=f"{number:,}") for key, number in token_counts if number)
    counts = [
        Count(text=turns),
        Count(text=count("tokens", head.tokens), about=about),
        Count(text=cost(head)),
        Count(text=decided(head)),
    ]
    return head.model_copy(update={"counts": [each for each in counts if each.text]})


def money(dollars: float) -> str:
    """An amount in dollars, with enough digits to differ from zero."""
    if dollars >= 1:
        return f"{dollars:,.2f}"
    return "0" if dollars == 0 else f"{dollars:.{4 if dollars < 0.01 else 3}f}"


def duration(seconds: float, *, whole_seconds: bool = False) -> str:
    """A duration in words; with ``whole_seconds``, no fractions of a second."""
    if seconds < 0.9995 and not whole_seconds:
        # round() would round a half to the even number
        return TEXTS["milliseconds"].format(n=max(1, int(seconds * 1000 + 0.5)))
    if seconds < 60:
        tenths = seconds < 9.95 and not whole_seconds
        return TEXTS["seconds"].format(n=f"{seconds:.1f}" if tenths else int(seconds))
    minutes = int(seconds // 60)
    if minutes < 60:
        return TEXTS["minutes"].format(m=minutes, s=int(seconds % 60))
    return TEXTS["hours"].format(h=minutes // 60, m=minutes % 60)
