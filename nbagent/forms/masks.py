"""pydantic's masks for secrets, taken out of what would be sent: a mask is not the secret."""

from __future__ import annotations

from .nodes import Map, Node, Object, Rows, Union
from .spec import holds_secret
from .values import ABSENT, MASK, Json, dumps


def masked(value: Json) -> bool:
    """Whether a mask stands anywhere inside."""
    return value is not ABSENT and MASK in dumps(value)


def without_masks(node: Node) -> Json:
    """The value of a node, with masked secrets left out; ``ABSENT`` where it is one itself."""
    if node.value is ABSENT or not holds_secret(node):
        return node.value
    match node:
        case Object():
            kept = {each.key: without_masks(each) for each in node.fields}
            return {key: kept[key] for key in node.value if kept.get(key, ABSENT) is not ABSENT}
        case Map():
            entries = {key: without_masks(each) for key, each in node.entries}
            return {key: each for key, each in entries.items() if each is not ABSENT}
        case Rows():
            rows = [without_masks(each) for each in node.rows]
            return [each for each in rows if each is not ABSENT]
        case Union() if node.branch is not None:
            return without_masks(node.branches[node.branch].node)
        case _:
            return node.value
