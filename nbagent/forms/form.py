"""``Form``: a question as fields, and a person's drafts as a validated answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .answer.check import Checked
from .answer.decode import Decoder
from .answer.keep import keepable
from .answer.parts import Part, Path, Problem
from .build.build import Made, made_of
from .build.choose import made_choice
from .nodes.nodes import Node, Object
from .nodes.spec import Draft, spec
from .secrets import asked_secrets, masked, scrubbed, unmasked
from .static import record
from .texts import say
from .values import ABSENT, MAX_NESTING, Json, as_document, broken, depth_over, dumps, same

Error = tuple[str | None, Path, str]
"""Field id (None: the form as a whole), place in the document, message."""


@dataclass(frozen=True)
class Submission:
    """What became of a person's drafts.

    ``json_text`` is the answered document, also where the validator refused it, or None where drafts
    could not be read. ``value`` is typed by the form's target; for a JSON Schema it is the document.
    ``changed`` has, per top-level field that differs from the prefill, what was there before and what
    is there now (None for nothing); secrets say only that they were provided.
    """

    ok: bool
    json_text: str | None = None
    value: Any = None
    errors: list[Error] = field(default_factory=list)
    changed: dict[str, tuple[Json, Json]] = field(default_factory=dict)
    why: dict[int, str] = field(default_factory=dict)
    """By place in ``errors``: what the other shapes of a union said, which the person did not pick."""

    @property
    def document(self) -> Json:
        """The answered document, None where there is none."""
        return None if self.json_text is None else json.loads(self.json_text)


class Form:
    """A form for a pydantic type, a function's parameters, or a JSON Schema.

    ``target`` is a pydantic type of any root kind, a ``TypeAdapter``, a function (its parameters; it
    is never called), or a JSON Schema (a dict or bool). ``value`` prefills it with a JSON document,
    which need not fit and comes back exactly where it is not touched. ``editable`` is True, False, or
    the names of the top-level fields that may be changed. Making a form never raises.
    """

    def __init__(
        self,
        target: Any,
        *,
        value: Any = ABSENT,
        editable: bool | Iterable[str] = True,
        title: str | None = None,
    ) -> None:
        made = target if isinstance(target, Made) else made_of(target, value, editable)
        self.fields: Node = made.root
        self.title = made.root.label if title is None else title
        self._made = made

    @property
    def warning(self) -> str:
        """What to tell the person first: that a JSON Schema, which may be anybody's, asks for secrets."""
        names = asked_secrets(self.fields) if self._made.outside else ()
        return say("asks_secret", names=", ".join(names)) if names else ""

    @classmethod
    def choose(
        cls,
        options: Sequence[tuple[Any, str | None, str | None]],
        *,
        multiple: bool = False,
        allow_other: bool = False,
        selected: Iterable[Any] = (),
        output: Any = None,
    ) -> Form:
        """A form whose root is one choice among ``options``, each a value, a label and a help text.

        The answer is the chosen option's value, with ``multiple`` a list of them; ``allow_other``
        takes a write-in. ``output`` (a type, TypeAdapter or JSON Schema) is what it must also fit.
        """
        return cls(
            made_choice(
                options,
                multiple=multiple,
                allow_other=allow_other,
                selected=selected,
                output=output,
            )
        )

    def spec(self) -> dict[str, Json]:
        """What the front end draws: strict JSON, without secrets."""
        return {"root": spec(self.fields)}

    def untouched(self) -> Draft:
        """The drafts of a person who touches nothing."""
        return None

    def submit(self, drafts: Draft) -> Submission:
        """Read and validate drafts; any JSON is taken, and what is wrong is in ``errors``."""
        decoder = Decoder(self._made.tree)
        part = decoder.decode(self.fields, drafts)
        text = None if part.value is ABSENT else _text(part.value)
        if text is None and part.value is not ABSENT:
            decoder.problems.append(Problem(None, (), say("broken_text")))
        checked = Checked() if text is None else self._made.checker.check(text, part.value, part)
        told = _in_order(part, _together(decoder.problems, checked.problems))
        errors = [(each.field, each.path, scrubbed(each.message, decoder.secrets)) for each in told]
        why = {i: scrubbed(each.why, decoder.secrets) for i, each in enumerate(told) if each.why}
        readable = text if not decoder.problems else None
        changed = self._changed(part) if readable is not None else {}
        if errors or text is None:
            return Submission(ok=False, json_text=readable, errors=errors, changed=changed, why=why)
        return Submission(ok=True, json_text=text, value=checked.value, changed=changed)

    def keepable(self, drafts: Draft) -> Draft:
        """The drafts as they may be kept and shown again: without what was typed into secrets."""
        if depth_over(drafts, MAX_NESTING):  # no page makes such, and nothing could send it back
            return None
        return keepable(self._made.tree, self.fields, drafts)

    def static_html(self, answer: Any = None) -> str:
        """The record, for pages without a kernel: title and answer, escaped, no script, no ids.

        ``answer`` is a document, a typed value or a ``Submission``; without one the questions are
        listed with what they are prefilled with.
        """
        document = _answered(answer)
        if document is ABSENT:
            return record(self.title, self.fields, answered=False, warning=self.warning)
        tree = self._made.tree.root(document, read_only=True)
        before = self.fields if self._made.document is not ABSENT else None
        return record(self.title, tree, answered=True, before=before)

    def _changed(self, part: Part) -> dict[str, tuple[Json, Json]]:
        before = self._made.document
        if not isinstance(before, dict) or not isinstance(part.value, dict):
            return {}
        names = [*before, *(name for name in part.value if name not in before)]
        pairs = ((name, before.get(name, ABSENT), part.value.get(name, ABSENT)) for name in names)
        secret = _secret_names(self.fields)
        return {
            name: (_told(old, secret=name in secret), _told(new, secret=name in secret))
            for name, old, new in pairs
            if old is ABSENT or new is ABSENT or not same(old, new)
        }


def _answered(answer: Any) -> Json:
    """The document of an answer; a secret that pydantic wrote as a mask was still provided."""
    if isinstance(answer, Submission):
        return json.loads(answer.json_text) if answer.ok and answer.json_text else ABSENT
    document = ABSENT if answer is None else as_document(answer)
    return unmasked(document) if masked(document) else document


def _text(value: Json) -> str | None:
    """The JSON text, or None for what no text can carry (half characters, endless numbers)."""
    try:
        text = dumps(value)
    except (ValueError, RecursionError):
        return None
    return None if broken(text) else text


def _together(read: list[Problem], checked: list[Problem]) -> list[Problem]:
    """All problems; where a draft could not be read, the validator's view of the gap is noise."""
    unread = {each.path for each in read}
    kept = [
        each
        for each in checked
        if not any(each.path[:length] in unread for length in range(1, len(each.path) + 1))
    ]
    return [*read, *(kept if () not in unread else [])]


def _in_order(part: Part, problems: list[Problem]) -> list[Problem]:
    """The problems in the order of the fields, those of the form as a whole last."""
    order = {id_: at for at, id_ in enumerate(_ids(part))} if problems else {}
    return sorted(
        problems, key=lambda each: len(order) if each.field is None else order.get(each.field, -1)
    )


def _ids(part: Part) -> Iterator[str]:
    """The ids of a part and all inside it, in the order of the form."""
    todo = [part]
    while todo:
        here = todo.pop()
        yield here.id
        todo += reversed([*([here.branch] if here.branch else []), *here.children.values()])


def _secret_names(root: Node) -> set[str]:
    return {each.key for each in root.fields if each.secret} if isinstance(root, Object) else set()


def _told(value: Json, *, secret: bool) -> Json:
    if value is ABSENT:
        return None
    return say("provided") if secret else value
