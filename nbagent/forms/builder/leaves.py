"""Nodes without children: controls, options, constants, and the JSON box for everything else."""

from __future__ import annotations

from typing import Any, cast

from nbagent.forms.nodes import Choice, Const, Kind, Leaf, Node
from nbagent.forms.schema.refs import Keywords
from nbagent.forms.schema.shape import SchemaInfo, SchemaOption, hint_of, label_of, notes, suits
from nbagent.forms.texts import text_for
from nbagent.forms.values import ABSENT, Json, as_text, equality_key, same

LONG_TEXT = 80
"""Characters of a prefilled text; a longer text gets a text area."""
LONG_LIMIT = 120
"""``maxLength`` of a text; a larger limit gets a text area."""
_AREA_FORMATS = ("multi-line", "multiline", "textarea", "markdown", "html", "xhtml")
_FILE_FORMATS = ("base64", "base64url", "data-url")


class NodeArgs(dict[str, Any]):
    """The arguments that nodes of every kind take, for the node at one place in the form."""

    @property
    def shows(self) -> Json:
        """The value that the node will show before it is touched."""
        return self["default"] if self["value"] is ABSENT else self["value"]

    def evolve(self, **changes: Any) -> NodeArgs:
        """A copy of the arguments, with changes."""
        return NodeArgs({**self, **changes})


def json_box(args: NodeArgs, reason: str = "") -> Leaf:
    """A text area for any JSON."""
    note = text_for("cannot_edit", reason=reason) if reason else ""
    text = " ".join(filter(None, (args["help"], note)))
    return Leaf(**args.evolve(kind="json", help=text, multiline=True, limits={}))


def leaf(info: SchemaInfo, args: NodeArgs) -> Node:
    """The node for a shape that has no children."""
    shape, keywords = info.shape, info.keywords
    if shape == "null":
        return Const(**args.evolve(kind="const", const=None))
    if shape in ("const", "choice", "open_choice"):
        return _choice(info, args)
    if shape == "text":
        return _text(keywords, args)
    if shape == "decimal":
        given = (args["value"], args["default"])
        texts = [each.strip().lower() for each in given if isinstance(each, str)]
        if not all(text and set(text) <= set("0123456789.+-e_") for text in texts):
            return json_box(args)
    return Leaf(**args.evolve(kind=cast("Kind", shape)))


def _choice(info: SchemaInfo, args: NodeArgs) -> Node:
    options = info.options
    needed = args["required"] or args["has_default"] or args["hint"].get("tag")
    if info.shape == "const" and needed and not args["nullable"]:  # asks nothing
        return Const(**args.evolve(kind="const", const=options[0].value))
    value = args["value"]
    other = None
    if info.shape == "open_choice":
        other = Leaf(**args.evolve(kind="text", value=ABSENT, default=ABSENT))
    known = value is ABSENT or any(same(value, option.value) for option in options)
    if not known and other is None and not (value is None and args["nullable"]):
        options = (*options, SchemaOption(value, label_of(value), text_for("not_an_option")))
    return Choice(**args.evolve(kind="choice", options=options, other=other))


_LANGUAGES = {"text/x-python": "python", "application/sql": "sql"}
"""Languages of code, by media type in JSON Schema's ``contentMediaType``."""


def _text(keywords: Keywords, args: NodeArgs) -> Leaf:
    format_ = keywords.get("format") if isinstance(keywords.get("format"), str) else ""
    widget = str(hint_of(keywords).get("widget", ""))
    encoding = keywords.get("contentEncoding")
    if format_ == "duration":
        how = text_for("timedelta_help" if notes(keywords).get("timedelta") else "duration_help")
        text = " ".join(filter(None, (args["help"], how)))
        return Leaf(**args.evolve(kind="duration", format=format_, help=text))
    language = _LANGUAGES.get(str(keywords.get("contentMediaType", "")), "")
    if widget.startswith("code") or language or "json" in str(keywords.get("contentMediaType", "")):
        language = widget.partition(":")[2] or language or "json"
        hint = {**args["hint"], "code": language}
        return Leaf(**args.evolve(kind="code", hint=hint, multiline=True))
    if format_ in _FILE_FORMATS or encoding == "base64" or widget == "file":
        return Leaf(**args.evolve(kind="file", format=format_ or "base64"))
    shows, limit = args.shows, keywords.get("maxLength")
    is_long = isinstance(shows, str) and ("\n" in shows or len(shows) > LONG_TEXT)
    may_be_long = isinstance(limit, int) and limit > LONG_LIMIT and "format" not in keywords
    area = is_long or may_be_long or format_ in _AREA_FORMATS or widget == "textarea"
    return Leaf(**args.evolve(kind="text", format=format_, multiline=area))


def multi(item: SchemaInfo, args: NodeArgs, write_in: Node | None) -> Choice | None:
    """A list of options as one multi-select; None if the prefill repeats values or has unknown ones."""
    for values in (args["value"], args["default"]):
        if not isinstance(values, list):
            continue
        keys = [equality_key(value) for value in values]
        known = {equality_key(option.value) for option in item.options}
        unknown = [value for value, key in zip(values, keys, strict=True) if key not in known]
        writable = write_in is not None and all(isinstance(value, str) for value in unknown)
        if len(set(keys)) < len(keys) or (unknown and not writable):
            return None
    return Choice(**args.evolve(kind="multi", options=item.options, other=write_in))


def default_text(value: Json) -> str:
    """A default as a short text."""
    return label_of(value) if value is None or value == "" else as_text(value, limit=200)


def fits_control(info: SchemaInfo, value: Json) -> bool:
    """Whether the control can show this value; ``ABSENT`` and null always fit."""
    if value is ABSENT or value is None:
        return True
    if info.shape == "const":
        return same(value, info.options[0].value)
    return suits(info.shape, value)
