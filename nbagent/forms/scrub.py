"""Secrets out of messages: a validator of the user's own may repeat what it was given."""

from __future__ import annotations

from collections.abc import Iterable

from .texts import say
from .values import MASK, Json, children

SHORT = 3
"""Characters up to which a secret cannot be cut out of a sentence without wrecking it."""


def texts_in(value: Json) -> set[str]:
    """Every text anywhere inside a value."""
    todo, found = [value], set()
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            found.add(item)
        todo.extend(children(item))
    return found


def unmasked(value: Json) -> Json:
    """The value with pydantic's masks for secrets replaced by another, so that they count as given."""
    if isinstance(value, dict):
        return {key: unmasked(each) for key, each in value.items()}
    if isinstance(value, list):
        return [unmasked(each) for each in value]
    return say("provided") if value == MASK else value


def scrubbed(message: str, secrets: Iterable[str]) -> str:
    """The message without any secret in it."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        if secret not in message:
            continue
        if len(secret) <= SHORT:
            return say("secret_wrong")
        message = message.replace(secret, "•••")
    return message
