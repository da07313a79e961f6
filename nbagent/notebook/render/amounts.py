"""Numbers, money and time as they are written; ``frontend/format.js`` writes them alike."""

from __future__ import annotations

from nbagent.notebook.texts import TEXTS


def count(key: str, number: int) -> str:
    """How many there are of what this text counts; nothing for none."""
    text = TEXTS[f"{key}_one" if number == 1 else key]
    return text.format(n=f"{number:,}") if number else ""


def money(dollars: float) -> str:
    """An amount in dollars, with as many digits as it takes to tell it from nothing."""
    if dollars >= 1:
        return f"{dollars:,.2f}"
    return "0" if dollars == 0 else f"{dollars:.{4 if dollars < 0.01 else 3}f}"


def duration(seconds: float, *, whole: bool = False) -> str:
    """A stretch of time in words; ``whole`` for what is counted in seconds."""
    if seconds < 0.9995 and not whole:
        return TEXTS["milliseconds"].format(n=max(1, _rounded(seconds * 1000)))
    if seconds < 60:
        tenths = seconds < 9.95 and not whole
        return TEXTS["seconds"].format(n=f"{seconds:.1f}" if tenths else int(seconds))
    minutes = int(seconds // 60)
    if minutes < 60:
        return TEXTS["minutes"].format(m=minutes, s=int(seconds % 60))
    return TEXTS["hours"].format(h=minutes // 60, m=minutes % 60)


def _rounded(number: float) -> int:
    """The nearest whole number, halves up."""
    return int(number + 0.5)
