"""What an edit changed, line by line; ``frontend/fields/diff.js`` finds the same lines."""

from __future__ import annotations

from typing import Literal, TypeAlias

MAX_PAIRS = 250_000
"""Pairs of lines that are compared; beyond, what differs is taken as a whole."""

Line: TypeAlias = tuple[Literal[" ", "-", "+"], str]


def line_diff(before: str, after: str) -> list[Line]:
    """Each line with a mark: in both, only in the old text, or only in the new one."""
    old, new = before.split("\n"), after.split("\n")
    head = _alike(old, new)
    tail = _alike(old[head:][::-1], new[head:][::-1])
    return [
        *((" ", line) for line in new[:head]),
        *_middle(old[head : len(old) - tail], new[head : len(new) - tail]),
        *((" ", line) for line in new[len(new) - tail :]),
    ]


def _alike(one: list[str], other: list[str]) -> int:
    """How many lines at the start are the same."""
    differing = (i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(differing, min(len(one), len(other)))


def _middle(old: list[str], new: list[str]) -> list[Line]:
    """The fewest lines to take out and put in."""
    if len(old) * len(new) > MAX_PAIRS:
        return [*(("-", line) for line in old), *(("+", line) for line in new)]
    common = _common(old, new)
    lines: list[Line] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            lines.append((" ", old[i]))
            i, j = i + 1, j + 1
        elif i < len(old) and (j == len(new) or common[i + 1][j] >= common[i][j + 1]):
            lines.append(("-", old[i]))
            i += 1
        else:
            lines.append(("+", new[j]))
            j += 1
    return lines


def _common(old: list[str], new: list[str]) -> list[list[int]]:
    """How many lines the rests from each pair of places have in common."""
    table = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            alike = old[i] == new[j]
            table[i][j] = (
                table[i + 1][j + 1] + 1 if alike else max(table[i + 1][j], table[i][j + 1])
            )
    return table
