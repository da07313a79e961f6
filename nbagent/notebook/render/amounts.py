"""Numbers, money and durations as text; ``frontend/format.js`` writes durations in the same way."""

from __future__ import annotations

from collections.abc import Collection

from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import CardHead, Count

ENDED = ("completed", "failed", "cancelled")
COMPACT = 1_000
"""The number of tokens from which on three digits are shown, and all digits in the tooltip."""
WORK = ("model", "tool", "inner")
"""The lanes of the time strip in which something works."""
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
    exact = f"{head.tokens:,}" if head.tokens >= COMPACT else ""
    token_counts = [("tokens", exact), ("cached", head.cached), ("reasoned", head.reasoning)]
    about = ", ".join(
        TEXTS[key].format(n=n if n is exact else f"{n:,}") for key, n in token_counts if n
    )
    counts = [
        Count(text=head.model),
        Count(text="" if head.chat or not head.started_at else "{t}"),
        Count(text=tokens(head.tokens), about=about),
        Count(text=cost(head)),
        Count(text=near_limit(head)),
        Count(text=decided(head)),
    ]
    return head.model_copy(update={"counts": [each for each in counts if each.text]})


def near_limit(head: CardHead) -> str:
    """The turns and their limit; empty if the run has ended, or has more than a fourth of them left."""
    left = head.max_turns - head.turns
    if not head.max_turns or not head.turns or head.status in ENDED or left * NEAR > head.max_turns:
        return ""
    return TEXTS["turns_of"].format(n=head.turns, m=head.max_turns)


def tokens(number: int) -> str:
    """The number of tokens with three digits; empty for zero."""
    if number < COMPACT:
        return count("tokens", number)
    size, unit = (number / 1e6, "M") if number >= 999_500 else (number / 1e3, "k")
    digits = f"{size:.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"
    return TEXTS["tokens"].format(
        n=f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}{unit}"
    )


def busy(head: CardHead, lanes: Collection[str] = WORK) -> float:
    """The seconds in which these lanes were busy, by default without waits; times that overlap count once."""
    return sum(end - start for start, end in periods(head, lanes))


def periods(head: CardHead, lanes: Collection[str] = WORK) -> list[tuple[float, float]]:
    """The times in which these lanes were busy, in seconds from the start; an open span ends with the last event."""
    length = max((span.end or span.start for span in head.spans), default=0.0)
    found: list[tuple[float, float]] = []
    for span in sorted(head.spans, key=lambda span: span.start):
        end = max(span.start, span.end or length)
        if span.lane not in lanes:
            continue
        if found and span.start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((span.start, end))
    return found


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
