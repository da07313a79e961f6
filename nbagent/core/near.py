"""What somebody who mistyped a name may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def meant(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'danger'?`` for a name that is near to a known one, else nothing."""
    import difflib  # noqa: PLC0415  only a mistake needs it

    lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    return f"; did you mean {lower[found[0]]!r}?" if found else ""
