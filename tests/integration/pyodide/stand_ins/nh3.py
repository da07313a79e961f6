"""A stand-in for nh3 0.3.4, which has no wheel for web pages. It has only the functions that nbagent uses."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from html.parser import HTMLParser

VOID = frozenset(["br", "col", "hr", "img", "wbr"])


class Cleaner:
    def __init__(
        self,
        tags: set[str],
        clean_content_tags: set[str],
        attributes: Mapping[str, set[str]],
        attribute_filter: Callable[[str, str, str], str | None] | None = None,
        tag_attribute_values: Mapping[str, Mapping[str, set[str]]] | None = None,
        set_tag_attribute_values: Mapping[str, Mapping[str, str]] | None = None,
        url_schemes: set[str] = frozenset({"http", "https", "mailto"}),
        allowed_classes: Mapping[str, set[str]] | None = None,
    ) -> None:
        self.tags, self.dropped, self.attributes = tags, clean_content_tags, attributes
        self.filter = attribute_filter
        self.values = tag_attribute_values or {}
        self.set = set_tag_attribute_values or {}
        self.schemes, self.classes = url_schemes, allowed_classes or {}

    def clean(self, markup: str) -> str:
        parser = _Parser(self)
        parser.feed(markup)
        parser.close()
        return "".join([*parser.out, *(f"</{tag}>" for tag in reversed(parser.open))])


class _Parser(HTMLParser):
    def __init__(self, cleaner: Cleaner) -> None:
        super().__init__(convert_charrefs=True)
        self.cleaner = cleaner
        self.out: list[str] = []
        self.open: list[str] = []
        self.inside_dropped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.cleaner.dropped:
            self.inside_dropped += 1
        if self.inside_dropped or tag not in self.cleaner.tags:
            return
        kept = {name: value for name, told in attrs if (value := self._kept(tag, name, told or ""))}
        kept |= self.cleaner.set.get(tag, {})
        if tag == "a":
            kept["rel"] = "noopener noreferrer"
        said = "".join(f' {name}="{html.escape(value)}"' for name, value in kept.items())
        self.out.append(f"<{tag}{said}>")
        if tag not in VOID:
            self.open.append(tag)

    def _kept(self, tag: str, name: str, value: str) -> str | None:
        cleaner = self.cleaner
        if name == "class":
            there = cleaner.classes.get(tag, set())
            return " ".join(one for one in value.split() if one in there) or None
        if value in cleaner.values.get(tag, {}).get(name, set()):
            return value
        if name not in cleaner.attributes.get(tag, set()):
            return None
        is_address = name in {"href", "src"}
        if is_address and value.partition(":")[0].lower() not in cleaner.schemes:
            return None
        return value if cleaner.filter is None else cleaner.filter(tag, name, value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.cleaner.dropped:
            self.inside_dropped = max(0, self.inside_dropped - 1)
        elif not self.inside_dropped and tag in self.open:
            while (closed := self.open.pop()) != tag:
                self.out.append(f"</{closed}>")
            self.out.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self.inside_dropped:
            self.out.append(html.escape(data, quote=False))
