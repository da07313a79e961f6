"""What of a form and its answer may be shown: nothing secret, and no field that is a widget elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.forms.hints import factory_of

from .texts import TEXTS


def without_secrets(node: dict[str, Any], value: Any) -> Any:
    """The value, with each field that is secret or holds a secret as a word that says it is there."""
    if node.get("kind") == "object" and isinstance(value, Mapping) and not node.get("secret"):
        fields = {field["key"]: field for field in node.get("fields", ())}
        return {k: without_secrets(fields.get(k, {}), v) for k, v in value.items()}
    return TEXTS["provided"] if value is not None and _is_secret(node) else value


def _is_secret(node: Any) -> bool:
    if isinstance(node, Mapping):
        return node.get("secret") is True or any(map(_is_secret, node.values()))
    return isinstance(node, list) and any(map(_is_secret, node))


def drawn_here(spec: dict[str, Any]) -> dict[str, Any]:
    """A form's spec without the fields that an ipywidget stands for."""
    return {**spec, "root": _without_widgets(spec["root"])}


def _without_widgets(node: dict[str, Any]) -> dict[str, Any]:
    if node["kind"] != "object" or "fields" not in node:
        return node
    kept = [_without_widgets(each) for each in node["fields"] if not _is_widget(each)]
    return {**node, "fields": kept}


def _is_widget(node: dict[str, Any]) -> bool:
    shown_here = node.get("read_only") or node.get("secret")
    return not shown_here and factory_of(node.get("hint", {})) is not None
