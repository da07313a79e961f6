"""The title, facts and choices in an interrupt's metadata, which may be any value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from nbagent.core.base.addresses import host_of
from nbagent.core.base.events import Interrupted
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.notebook.render import facts, sources
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import Fact

AnyInterrupt: TypeAlias = PendingInterrupt | Interrupted
_TITLE = 300
"""Maximum characters of a title; a longer message is shown as a fact."""


class QuestionMetadata:
    """An interrupt's metadata, whose parts are recognized by name and type."""

    def __init__(self, waiting: AnyInterrupt) -> None:
        value = waiting.metadata
        self._input = waiting.input
        self.asking = waiting.asking or {}
        """The inputs that form the question, if the body paused without metadata. A model wrote these inputs."""
        if value is None and waiting.kind == "question":
            value = waiting.input
        elif waiting.asking:
            value = waiting.asking
        self.approves = waiting.expects in ("approval", "edit", "confirmation")
        self.values: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {}
        self.value = value
        without_body = waiting.kind == "question" and facts.same_json(value, waiting.input)
        self.by_model = without_body or bool(waiting.asking)
        """Whether the model wrote the metadata, as input of a tool that has no body or that paused without metadata."""
        listed = self.values.get("choices")
        is_list = isinstance(listed, Sequence) and not isinstance(listed, str)
        self.choices = [_option(one) for one in listed] if is_list and listed else None
        self.danger = self.values.get("danger") is True
        """Whether approving cannot be undone."""
        self.multiple = self.values.get("multiple") is True
        others = (self.values.get("allow_other"), self.values.get("allowOther"))
        self.allow_other = True in others
        """Whether a person may write another answer than the choices."""

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of inputs that the title and the choices show already. Choices with their own labels do not count."""
        renamed = any(label != facts.shown(value) for value, label, _ in self.choices or ())
        asking = [n for n in self.asking if not (renamed and n == "choices")]
        if self.approves:
            return tuple(asking)
        seen: list[Any] = [self.title] if self.title and len(self.title) <= _TITLE else []
        seen += [] if renamed or not self.choices else [[value for value, *_ in self.choices]]
        repeated = (
            name
            for name, value in self._input.items()
            if any(facts.same_json(value, each) for each in seen)
            and not facts.remarks(value)  # else a fact must mark its lookalike characters
        )
        return tuple(dict.fromkeys((*asking, *repeated)))

    @property
    def title(self) -> str | None:
        """The text of the question in the metadata, if there is one."""
        for name in ("message", "question"):
            text = self.values.get(name)
            if isinstance(text, str) and text.strip():
                return text
        return self.value if isinstance(self.value, str) and self.value.strip() else None

    def facts(self, *used: str) -> list[Fact]:
        """The values except the title, the ``used`` names and None, as facts."""
        if not self.values:
            return [] if isinstance(self.value, str) else facts.facts_of(self.value)
        title = self.title
        skip = {*used, *(n for n in ("message", "question") if self.values.get(n) == title)}
        rest = {k: v for k, v in self.values.items() if k not in skip and v is not None}
        pages = [
            link_fact(rest.pop(name), name)
            for name in ("link", "sign_in")
            if isinstance(rest.get(name), str) and host_of(rest[name]) is not None
        ]
        return [*pages, *facts.facts_of(rest, prose=True, approved=self.approves)]


def link_fact(link: str, name: str) -> Fact:
    """A fact with a ``link`` to a page that the person may open, or to ``sign_in`` there."""
    words = TEXTS["sign_in_at" if name == "sign_in" else "open_page"]
    page = sources.page(link, words)
    return Fact(label=TEXTS[name], value=facts.shown(link), code=False, html=page)


def _option(value: Any) -> tuple[Any, str | None, str | None]:
    if isinstance(value, Mapping) and "value" in value and set(value) <= {"value", "label", "help"}:
        label, help_ = value.get("label"), value.get("help")
        return (
            value["value"],
            facts.shown(value["value"] if label is None else label),
            None if help_ is None else facts.shown(help_),
        )
    return value, facts.shown(value), None


def titled(metadata: QuestionMetadata, sentence: str) -> tuple[str, list[Fact]]:
    """The message as a title. A message that is too long becomes a fact, and ``sentence`` is the title."""
    title = metadata.title
    if title is None:
        return sentence, []
    text = facts.shown(title.strip())
    if len(text) <= _TITLE:
        return text, []
    return sentence, [Fact(label="message", value=text, code=False)]


def shape(document: Any) -> dict[str, Any]:
    """A JSON Schema guessed from a document's values, for a tool whose schema is unknown."""
    names: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
    if not isinstance(document, Mapping):
        return {}
    properties = {
        name: {"type": names[type(value)]} if type(value) in names else {}
        for name, value in document.items()
    }
    return {"type": "object", "properties": properties, "required": list(properties)}
