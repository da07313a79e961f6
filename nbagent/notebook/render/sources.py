"""The sources that a model read or cites, as links, whose titles are escaped and which lead only to the web."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nbagent.core.base.addresses import host_of
from nbagent.notebook.texts import TEXTS

from . import sanitize
from .reveal import reveal

MAX_SOURCES = 100
"""Links of one list."""
MAX_WORDS = 200
"""Characters of a link's words."""
MAX_URL = 2_000
"""Characters of an address; a longer one is not a link."""

Source = Mapping[str, str]
"""``url``, ``title``, or both."""


def listed(sources: Sequence[Source]) -> str:
    """A list of sources, in sanitized HTML."""
    items = "".join(f"<li>{_link(source)}</li>" for source in sources[:MAX_SOURCES])
    more = len(sources) - MAX_SOURCES
    rest = f"<p>{sanitize.escape(TEXTS['more_facts'].format(n=more))}</p>" if more > 0 else ""
    return sanitize.clean(f"<ul>{items}</ul>{rest}")


def cited(citations: Sequence[Source]) -> str:
    """One line that names each cited source once, in sanitized HTML."""
    once = {(each.get("url") or each.get("title", "")): each for each in reversed(citations)}
    links = [_link(each) for each in [*reversed(once.values())][:MAX_SOURCES]]
    return sanitize.clean(
        f"<p><small>{sanitize.escape(TEXTS['sources'])} {' · '.join(links)}</small></p>"
    )


def page(url: str, words: str) -> str:
    """A link to a page that a person is asked to open, in sanitized HTML; its words name the host."""
    label = sanitize.escape(words.format(host=host_of(url)))
    return sanitize.clean(f'<a href="{sanitize.escape(url)}">{label}</a>')


def _link(source: Source) -> str:
    """A link, followed by the host that it leads to, because the link's words may be misleading."""
    url, title = source.get("url") or "", source.get("title") or ""
    words = sanitize.escape(reveal((title or url)[:MAX_WORDS]))
    host = host_of(url) if len(url) <= MAX_URL and sanitize.link_is_safe(url) else None
    if host is None:
        return words
    is_host_shown = not title and url.startswith((f"https://{host}/", f"http://{host}/"))
    host_note = "" if is_host_shown else f" ({sanitize.escape(host[:MAX_WORDS])})"
    return f'<a href="{sanitize.escape(url)}">{words}</a>{host_note}'
