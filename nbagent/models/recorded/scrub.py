"""Remove keys, passwords and tokens from every text of a recording before it is stored or compared."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from nbagent.core.base.credentials import CUT
from nbagent.core.base.errors import UsageError
from nbagent.core.base.messages import Json, dumps

Change: TypeAlias = "str | re.Pattern[str] | Callable[[str], str]"
"""A pattern whose matches are removed from a text, or a function that returns the text without them."""

SHORT, WORD = 8, 20
"""The minimum length of an environment variable's secret, and of a secret that has only letters."""
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:api_?key|key|token|secret|password|passwd|passphrase|credentials?|cookie)(?:_|$)",
    re.IGNORECASE,
)
_SECRET_LOOK = re.compile(
    r"\bsk-[\w-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bhf_\w{20,}|\bxox[abeprs]-[\w-]{10,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"
    r"|(?<=-----BEGIN PRIVATE KEY-----)[^-]+|(?<=-----BEGIN RSA PRIVATE KEY-----)[^-]+"
)
"""The forms of services' keys: OpenAI, GitHub, Hugging Face, Slack, Amazon, Google; JWTs."""


_SIGNS = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "hf_", "xox", "AKIA", "AIza"),
    *("eyJ", "PRIVATE KEY-----"),
)
"""Fixed parts of the forms above; a search for them first takes a hundredth of the time."""


def changes(name: str, given: Change | Iterable[Change]) -> tuple[Change, ...]:
    """One or several changes as a tuple, with compiled patterns.

    Raises:
        UsageError: something is neither a pattern nor a function.
    """
    several = (
        [given] if isinstance(given, str | re.Pattern) or callable(given) else list(given or ())
    )
    return tuple(_change(name, one) for one in several)


def _change(name: str, given: Change) -> Change:
    if callable(given) or isinstance(given, re.Pattern):
        return given
    try:
        return re.compile(given)
    except (TypeError, re.error) as error:
        raise UsageError(
            f"{name}= takes regular expressions or string functions, got {given!r:.80} ({error})"
        ) from error


def changed(value: Json, change: Callable[[str], str], *, numbers: bool = False) -> Json:
    """JSON with the change applied to each text, including keys of objects; with ``numbers``, to each number too."""
    match value:
        case str():
            return change(value)
        case Mapping():
            return {
                change(key): changed(each, change, numbers=numbers) for key, each in value.items()
            }
        case list() | tuple():
            return [changed(each, change, numbers=numbers) for each in value]
        case int() | float() if numbers and not isinstance(value, bool):
            text = dumps(value)
            new = change(text)
            return value if new == text else new
        case _:
            return value


def replaced(text: str, change: Change, *, by: str) -> str:
    """The text after the change; matches of a pattern are replaced by ``by``."""
    if isinstance(change, re.Pattern):
        return change.sub(by, text)
    assert not isinstance(change, str)  # compiled by ``changes``
    new: Any = change(text)
    if not isinstance(new, str):
        name = getattr(change, "__name__", repr(change))
        raise UsageError(
            f"The function {name!r} for a recording must return text, got {new!r:.80} for {text!r:.80}"
        )
    return new


class Scrubber:
    """Removes secrets from texts, and counts them by their source.

    Secrets are values of environment variables with names like ``API_KEY``, texts that look like
    keys, the credentials of the recorded model's client, and matches of the person's patterns.
    ``credentials`` returns the function that removes a client's credentials from a text, or None.
    """

    def __init__(
        self,
        own: tuple[Change, ...] = (),
        credentials: Callable[[], Callable[[str], str] | None] = lambda: None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._own = own
        self._looked_at: dict[str, tuple[str, int]] = {}
        """The cached results by text. The cache costs little, because a recording has all texts in memory anyway."""
        self._credentials: tuple[Callable[[], Callable[[str], str] | None], ...] = (credentials,)
        found = {
            value: name
            for name, value in os.environ.items()
            if len(value) >= (WORD if value.isalpha() else SHORT) and _SECRET_NAME.search(name)
        }
        self._environment = sorted(found.items(), key=lambda each: -len(each[0]))

    def join(self, other: Scrubber) -> None:
        """Also remove the secrets of another scrubber from now on."""
        self._own += tuple(one for one in other._own if one not in self._own)
        self._credentials += other._credentials

    def value(self, value: Json) -> Json:
        """JSON without secrets."""
        return changed(value, self.text)

    def text(self, text: str) -> str:
        """A text without secrets."""
        for secret, name in self._environment:
            if secret in text:
                self.counts[name] += text.count(secret)
                text = text.replace(secret, CUT)
        for credentials in self._credentials:
            cut = credentials()
            if cut is not None:
                text = self._counted("the model's credentials", text, cut(text))
        found = self._looked_at.get(text)
        if found is None:
            has_a_sign = any(sign in text for sign in _SIGNS)
            found = _SECRET_LOOK.subn(CUT, text) if has_a_sign else (text, 0)
            self._looked_at[text] = found
        text, keys = found
        self.counts["what looks like a key"] += keys
        for change in self._own:
            text = self._counted("scrub=", text, replaced(text, change, by=CUT))
        return text

    def _counted(self, source: str, before: str, after: str) -> str:
        self.counts[source] += before != after
        return after
