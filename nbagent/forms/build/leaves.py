"""Nodes without children: controls, options, constants, and the JSON box for everything else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from nbagent.forms.nodes.nodes import Choice, Const, Kind, Leaf, Node
from nbagent.forms.schema.refs import Words
from nbagent.forms.schema.shape import Look, Option, hint_of, label_of, notes, suits
from nbagent.forms.texts import say
from nbagent.forms.values import ABSENT, Json, key_of, same, shown

LONG_TEXT = 80
"""Characters of a prefilled text from which it gets a text area."""
LONG_LIMIT = 120
"""``maxLength`` from which a text gets a text area."""
_AREA_FORMATS = ("multi-line", "multiline", "textarea", "markdown", "html", "xhtml")
_FILE_FORMATS = ("base64", "base64url", "data-url")


@dataclass(frozen=True)
class Common:
    """The keyword arguments that every node of one place takes."""

    words: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.words[key]

    def but(self, **changes: Any) -> dict[str, Any]:
        """The arguments, some of them changed."""
        return {**self.words, **changes}


def json_box(common: Common, reason: str = "") -> Leaf:
    """A text area for any JSON."""
    note = say("cannot_edit", reason=reason) if reason else ""
    text = " ".join(filter(None, (common["help"], note)))
    return Leaf(**common.but(kind="json", help=text, multiline=True, limits={}))


def leaf(found: Look, common: Common) -> Node:
    """The node for a shape that has no children."""
    shape, words = found.shape, found.words
    if shape == "null":
        return Const(**common.but(kind="const", const=None))
    if shape in ("const", "choice", "open_choice"):
        return _choice(found, common)
    if shape == "text":
        return _text(words, common)
    if shape == "decimal" and not _decimal_text(common["value"], common["default"]):
        return json_box(common)
    if shape == "json":
        return json_box(common, str(notes(words).get("reason", "")))
    return Leaf(**common.but(kind=cast("Kind", shape)))


def _decimal_text(*values: Json) -> bool:
    return not any(isinstance(each, str) and not _number_like(each) for each in values)


def _number_like(text: str) -> bool:
    return bool(text.strip()) and not set(text.strip().lower()) - set("0123456789.+-e_")


def _choice(found: Look, common: Common) -> Node:
    options = found.options
    if found.shape == "const" and _asks_nothing(common):
        return Const(**common.but(kind="const", const=options[0].value))
    value = common["value"]
    other = None
    if found.shape == "open_choice":
        other = Leaf(**common.but(kind="text", value=ABSENT, default=ABSENT))
    known = value is ABSENT or any(same(value, option.value) for option in options)
    if not known and other is None and not (value is None and common["nullable"]):
        options = (*options, Option(value, label_of(value), say("not_an_option")))
    return Choice(**common.but(kind="choice", options=options, other=other))


def _asks_nothing(common: Common) -> bool:
    """One possible value is no question, unless it may be left out or be null."""
    needed = common["required"] or common["has_default"] or common["hint"].get("tag")
    return bool(needed) and not common["nullable"]


def _text(words: Words, common: Common) -> Leaf:
    format_ = words.get("format") if isinstance(words.get("format"), str) else ""
    widget = str(hint_of(words).get("widget", ""))
    encoding = words.get("contentEncoding")
    if format_ == "duration":
        how = say("timedelta_help" if notes(words).get("timedelta") else "duration_help")
        text = " ".join(filter(None, (common["help"], how)))
        return Leaf(**common.but(kind="duration", format=format_, help=text))
    if widget.startswith("code") or "json" in str(words.get("contentMediaType", "")):
        language = widget.partition(":")[2] or "json"
        hint = {**common["hint"], "code": language}
        return Leaf(**common.but(kind="code", hint=hint, multiline=True))
    if format_ in _FILE_FORMATS or encoding == "base64" or widget == "file":
        return Leaf(**common.but(kind="file", format=format_ or "base64"))
    long = _is_long(words, common) or format_ in _AREA_FORMATS or widget == "textarea"
    return Leaf(**common.but(kind="text", format=format_, multiline=long))


def _is_long(words: Words, common: Common) -> bool:
    node_shows = common["default"] if common["value"] is ABSENT else common["value"]
    limit = words.get("maxLength")
    if isinstance(node_shows, str) and ("\n" in node_shows or len(node_shows) > LONG_TEXT):
        return True
    return isinstance(limit, int) and limit > LONG_LIMIT and "format" not in words


def multi(item: Look, common: Common, write_in: Node | None) -> Choice | None:
    """A list of options as one multi-select; None where the prefill repeats or has strangers."""
    for values in (common["value"], common["default"]):
        if isinstance(values, list) and not _pickable(values, item.options, write_in is not None):
            return None
    return Choice(**common.but(kind="multi", options=item.options, other=write_in))


def _pickable(values: list[Json], options: tuple[Option, ...], others: bool) -> bool:  # noqa: FBT001
    keys = [key_of(value) for value in values]
    known = {key_of(option.value) for option in options}
    strange = [value for value, key in zip(values, keys, strict=True) if key not in known]
    writable = others and all(isinstance(value, str) for value in strange)
    return len(set(keys)) == len(keys) and (writable or not strange)


def hidden_if_secret(node: Node) -> Node:
    """A secret without a default that could be shown or sent."""
    return replace(node, default=ABSENT, default_text="", examples=()) if node.secret else node


def default_text(value: Json) -> str:
    """A default as a short text."""
    return label_of(value) if value is None or value == "" else shown(value, limit=200)


def fits_control(found: Look, value: Json) -> bool:
    """Whether the control can show this value; null shows wherever it is allowed or prefilled."""
    if value is ABSENT or value is None:
        return True
    if found.shape == "const":
        return same(value, found.options[0].value)
    return suits(found.shape, value)
