"""The record of a form as static HTML: escaped, deterministic, without ids and scripts."""

from __future__ import annotations

import difflib
from html import escape

from .nodes import Choice, Const, Leaf, Map, Node, Object, Parts, Rows, Union
from .schema.shape import label_of
from .texts import text_for
from .values import ABSENT, Json, dumps, same


def record(
    title: str, root: Node, *, answered: bool, before: Node | None = None, warning: str = ""
) -> str:
    """A title and the fields with their values; values that differ from ``before`` are marked as changed."""
    heading = f'<div class="nbagent-title">{escape(title)}</div>' if title else ""
    note = f'<p class="nbagent-help">{escape(root.help)}</p>' if root.help and not answered else ""
    note += f'<p class="nbagent-warning">{escape(warning)}</p>' if warning else ""
    body = _value(root, before, answered=answered)
    return f'<div class="nbagent-form-record">{heading}{note}{body}</div>'


def _value(node: Node, before: Node | None, *, answered: bool) -> str:
    if node.secret:
        known = node.value is not ABSENT
        return _text(text_for("provided") if known else text_for("unanswered"), "nbagent-secret")
    if node.shows is ABSENT and not isinstance(node, Object | Const):
        return _text(text_for("unanswered"), "nbagent-none")
    if before is not None and (before.kind != node.kind or not _has_fields(node)):
        return _compared(node, before, answered=answered)
    return _plain(node, before, answered=answered)


def _has_fields(node: Node) -> bool:
    return isinstance(node, Object) and node.value is not ABSENT


def _compared(node: Node, before: Node, *, answered: bool) -> str:
    new = _plain(node, None, answered=answered)
    if before.secret or (before.value is not ABSENT and same(before.value, node.value)):
        return new
    if before.value is ABSENT:
        return f'<ins class="nbagent-after">{new}</ins>'
    lines = _line_diff(before.value, node.value)
    if lines:
        return lines
    old = _plain(before, None, answered=answered)
    return f'<del class="nbagent-before">{old}</del> <ins class="nbagent-after">{new}</ins>'


def _line_diff(old: Json, new: Json) -> str:
    """The difference of two texts, line by line; empty unless a text has several lines."""
    if not (isinstance(old, str) and isinstance(new, str) and "\n" in old + new):
        return ""
    rows = []
    for line in difflib.ndiff(old.splitlines(), new.splitlines()):
        mark, text = line[0], escape(line[2:])
        if mark == "-":
            rows.append(f'<del class="nbagent-before">{text}</del>')
        elif mark == "+":
            rows.append(f'<ins class="nbagent-after">{text}</ins>')
        elif mark == " ":
            rows.append(text)
    return '<pre class="nbagent-code">' + "\n".join(rows) + "</pre>"


def _plain(node: Node, before: Node | None, *, answered: bool) -> str:
    match node:
        case Object():
            return _fields(node, before, answered=answered)
        case Rows():
            return _rows(node, answered=answered)
        case Map():
            pairs = [
                (key, _value(each, None, answered=answered)) for key, each in node.entries.items()
            ]
            return _listed(pairs)
        case Parts():
            parts = [(each.label, _value(each, None, answered=answered)) for each in node.parts]
            return _listed(parts)
        case Union() if node.branch is not None:
            return _value(node.branches[node.branch].node, None, answered=answered)
        case _:
            return _scalar(node)


def _fields(node: Object, before: Node | None, *, answered: bool) -> str:
    earlier = {each.key: each for each in before.fields} if isinstance(before, Object) else {}
    pairs = [
        (each.label, _value(each, earlier.get(each.key), answered=answered))
        for each in node.fields
        if not answered or each.value is not ABSENT
    ]
    current = {each.key for each in node.fields if each.value is not ABSENT}
    if answered:
        pairs += [
            (each.label, f'<del class="nbagent-before">{_value(each, None, answered=True)}</del>')
            for key, each in earlier.items()
            if key not in current and each.value is not ABSENT
        ]
    return _listed(pairs)


def _listed(pairs: list[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{escape(label)}</dt><dd>{value}</dd>" for label, value in pairs)
    return (
        f'<dl class="nbagent-fields">{items}</dl>'
        if items
        else _text(text_for("nothing"), "nbagent-none")
    )


def _rows(node: Rows, *, answered: bool) -> str:
    if not node.rows:
        return _text(text_for("nothing"), "nbagent-none")
    if node.kind == "table":
        return _table(node, answered=answered)
    items = "".join(f"<li>{_value(row, None, answered=answered)}</li>" for row in node.rows)
    return f'<ol class="nbagent-rows">{items}</ol>'


def _table(node: Rows, *, answered: bool) -> str:
    labels: dict[str, str] = {}
    cells: list[dict[str, str]] = []
    for row in node.rows:
        fields = row.fields if isinstance(row, Object) else ()
        labels.update({each.key: each.label for each in fields})
        cells.append(
            {
                each.key: _value(each, None, answered=answered)
                for each in fields
                if each.value is not ABSENT
            }
        )
    head = "".join(f'<th scope="col">{escape(label)}</th>' for label in labels.values())
    body = "".join(
        "<tr>" + "".join(f"<td>{row.get(key, '')}</td>" for key in labels) + "</tr>"
        for row in cells
    )
    return (
        f'<table class="nbagent-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _scalar(node: Node) -> str:
    value = node.const if isinstance(node, Const) and node.value is ABSENT else node.shows
    if isinstance(node, Choice):
        return _chosen(node, value)
    if isinstance(node, Leaf) and node.kind in ("json", "code"):
        text = value if isinstance(value, str) and node.kind == "code" else dumps(value, indent=2)
        return f'<pre class="nbagent-code">{escape(text)}</pre>'
    if isinstance(value, str) and "\n" in value:
        return f'<pre class="nbagent-text">{escape(value)}</pre>'
    return _text(label_of(value, limit=None), "nbagent-value")


def _chosen(node: Choice, value: Json) -> str:
    if node.kind != "multi" or not isinstance(value, list):
        return _text(_label(node, value), "nbagent-value")
    items = "".join(f"<li>{escape(_label(node, each))}</li>" for each in value)
    return (
        f'<ul class="nbagent-rows">{items}</ul>'
        if items
        else _text(text_for("nothing"), "nbagent-none")
    )


def _label(node: Choice, value: Json) -> str:
    found = (option.label for option in node.options if same(option.value, value))
    return next(found, label_of(value, limit=None))


def _text(text: str, kind: str) -> str:
    return f'<span class="{kind}">{escape(text)}</span>'
