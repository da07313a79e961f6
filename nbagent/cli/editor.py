"""An answer that is larger than a line: JSON in the person's editor, checked when it is saved.

Secrets are asked in the terminal, so that no file has them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nbagent.forms.form import Form
from nbagent.forms.nodes import (
    Choice,
    Const,
    Draft,
    Grid,
    Map,
    Node,
    Object,
    Parts,
    Rows,
    Union,
    below,
)
from nbagent.forms.secrets import may_hold_secret
from nbagent.forms.values import ABSENT, Json, dumps, loads
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.wire import FieldError

from .output import USAGE, CommandError
from .terminal import Left, Stopped, Terminal, ask_field, hints_of

_MARK = "//"
"""The start of a comment line; no line of JSON begins with it."""
_MAX_DEPTH = 6
_MAX_OPTIONS = 30
_KINDS = {
    "text": "text",
    "code": "text",
    "file": "text, in base64",
    "int": "integer",
    "num": "number",
}
_KINDS |= {"decimal": "number or text", "duration": "text or seconds", "bool": "true or false"}
_KINDS |= {
    "object": "object",
    "list": "list of",
    "table": "list of",
    "grid": "list of",
    "map": "object, each value",
}
_KINDS |= {"tuple": "list of these", "union": "one of these", "multi": "list of"}


class EditorForm:
    """A form as one JSON document in an editor."""

    def __init__(self, terminal: Terminal, form: Form) -> None:
        self._terminal = terminal
        self._root = form.fields
        self._secrets: dict[str, Draft] = {}
        self._text = _written(_start(self._root))

    def drafts(self, errors: Sequence[FieldError]) -> Draft:
        """Open the editor, with the errors on top, and return the input.

        Raises:
            Left: the person stopped.
            Stopped: the file is empty or unchanged, or would have to contain a secret.
            CommandError: there is no editor, or it failed.
        """
        for node in _holders(self._root):
            raise Stopped(f"{node.label or node.key!r} has a secret inside. Answer in a notebook.")
        secret = [error for error in errors if error.field in self._secrets]
        for error in secret:
            self._terminal.show(f"! {error.message}")
            del self._secrets[str(error.field)]
        if len(secret) == len(errors) > 0:
            return self._draft(self._root, loads(self._text))
        problems = [_line(error) for error in errors if error not in secret]
        while True:
            self._text = _edited([*problems, "", *_described(self._root)], self._text)
            try:
                return self._draft(self._root, loads(self._text))
            except ValueError as error:
                problems = [f"This is not JSON: {error}"]

    def _draft(self, node: Node, value: Json) -> Draft:
        """The draft of a value; a secret is asked once."""
        if node.secret:
            if node.id not in self._secrets:
                self._secrets[node.id] = ask_field(self._terminal, node)
            return self._secrets[node.id]
        if not isinstance(node, Object) or not isinstance(value, dict) or not may_hold_secret(node):
            return {"cleared": True} if value is ABSENT else {"json": {"text": dumps(value)}}
        known = {each.key: each for each in node.fields}
        fields = {key: self._draft(each, value.get(key, ABSENT)) for key, each in known.items()}
        others = {
            key: {"json": {"text": dumps(part)}} for key, part in value.items() if key not in known
        }
        if node.more is None:  # the form refuses unknown names
            return {"fields": fields | others}
        rows = [{"from": None, "key": key, "draft": draft} for key, draft in others.items()]
        return {"fields": fields, "more": {"entries": rows}}


def _holders(node: Node) -> Iterator[Node]:
    """The fields with a secret inside that cannot be asked by itself, as in a list."""
    if isinstance(node, Object) and not node.secret:
        for each in below(node):
            yield from _holders(each)
    elif not node.secret and may_hold_secret(node):
        yield node


def _start(node: Node) -> Json:
    """The document to edit: the values that the form shows, and null for each that is missing."""
    match node:
        case Object() if node.shows is ABSENT or may_hold_secret(node):
            wanted = (e for e in node.fields if e.required or e.shows is not ABSENT)
            return {each.key: _start(each) for each in wanted if not each.secret}
        case Const():
            return node.const
        case _ if node.shows is not ABSENT:
            return node.shows
        case Rows() | Grid():
            return []
        case Map():
            return {}
        case Parts():
            return [_start(each) for each in node.parts]
        case _:
            return None


def _described(node: Node, name: str = "", depth: int = 0) -> Iterator[str]:
    """The schema, a line for each field."""
    match node:
        case _ if node.secret:
            words = "secret; the terminal asks for it"
        case Const():
            words = dumps(node.const)
        case Choice():
            values = ", ".join(dumps(each.value) for each in node.options[:_MAX_OPTIONS])
            more = ", …" if node.other or len(node.options) > _MAX_OPTIONS else ""
            words = f"{_KINDS.get(node.kind, 'one of')} {values}{more}"
        case _:
            words = _KINDS.get(node.kind, "any JSON")
    hints = ["or null" if node.nullable else "", hints_of(node), "fixed" if node.read_only else ""]
    text = ", ".join(filter(None, [words, *hints]))
    line = ": ".join(filter(None, [name, text]))
    yield f"{'  ' * depth}{line}{f'  ({node.help})' if node.help else ''}"
    if node.secret or depth > _MAX_DEPTH:
        return
    match node:
        case Object():
            inner = [(each.key, each) for each in node.fields]
        case Rows() | Grid() | Map():
            inner = [("", node.item)]
        case Parts():
            inner = [("", each) for each in node.parts]
        case Union():
            inner = [(each.label, each.node) for each in node.branches]
        case _:
            inner = []
    for key, each in inner:
        yield from _described(each, key, depth + 1)


def _line(error: FieldError) -> str:
    """An error as a line of a comment."""
    place = (error.field or "").lstrip("/")
    return f"Not accepted: {place + ': ' if place else ''}{error.message}"


def _written(document: Json) -> str:
    """The text of a document, with each hidden character as its code."""
    text = dumps(document, indent=2)
    hidden = [each for each in set(text) if reveal(each) != each]
    return text.translate({ord(each): json.dumps(each)[1:-1] for each in hidden})


def _edited(comments: Iterable[str], text: str) -> str:
    """The text after the person has changed it, without comments."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not chosen:
        raise CommandError(
            "This question needs an editor. Set VISUAL or EDITOR, such as `export EDITOR=nano`, or pass the answer: in "
            "a script with answers=, in `nbagent answer` with an option (see its --help)",
            USAGE,
        )
    usual = ["Save and close to continue. An empty or unchanged file cancels.", *comments]
    lines = [line for each in usual for line in reveal(each).splitlines() or [""]]
    head = "".join(f"{f'{_MARK} {line}'.rstrip()}\n" for line in lines)
    with tempfile.TemporaryDirectory() as folder:  # only this user can read it
        path = Path(folder, "answer.jsonc")
        path.write_text(f"{head}\n{text}\n", encoding="utf-8")
        command = [*shlex.split(chosen, posix=os.name != "nt"), str(path)]
        try:  # standard output may be a file for the command's JSON
            code = subprocess.run(command, stdout=sys.stderr, check=False).returncode
            saved = path.read_text(encoding="utf-8")
        except KeyboardInterrupt:
            raise Left from None
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(
                f"The editor {chosen!r} failed, so nothing was changed: {error}"
            ) from error
    if code:
        raise CommandError(
            f"The editor {chosen!r} ended with exit code {code}, so nothing was changed"
        )
    # a JSON text may contain the other ends of lines that ``splitlines`` knows
    kept = [line for line in saved.split("\n") if not line.lstrip().startswith(_MARK)]
    found = "\n".join(kept).strip()
    if found in ("", text.strip()):
        raise Stopped("The file is unchanged.")
    return found
