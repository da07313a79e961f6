"""Questions in a terminal: lines, secrets, menus, and the fields of a form."""

from __future__ import annotations

import base64
import getpass
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from nbagent.forms.form import Form
from nbagent.forms.nodes import Choice, Const, Draft, Leaf, Map, Node, Object, Parts, Rows, Union
from nbagent.forms.schema.fields import describe_limits
from nbagent.forms.schema.fields import escaped as step_of
from nbagent.forms.schema.shape import label_of
from nbagent.forms.values import ABSENT
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.wire import FieldError

from .output import print_aside

T = TypeVar("T")

NO_VALUE = "-"
"""The input that means no value, where a field is nullable."""
LAST_LINE = "."
"""The line that ends a text of several lines."""
_WORDS = {
    "int": "an integer",
    "num": "a number",
    "decimal": "a number",
    "duration": "such as 1:30:00",
    "json": "JSON",
    "widget": "JSON",
    "file": "the path of a file",
}
_FORMATS = {
    "date": "such as 2026-11-30",
    "date-time": "such as 2026-11-30T14:30Z",
    "time": "such as 14:30",
}


class Left(Exception):
    """The person stopped: the input ended, or Ctrl+C was pressed."""


class Terminal:
    """A terminal with a person; all output goes to standard error."""

    @property
    def is_there(self) -> bool:
        """Whether a person can type."""
        return sys.stdin.isatty()

    def show(self, text: str = "") -> None:
        """Print text, with hidden characters revealed, as a page shows it."""
        print_aside(reveal(text))

    def ask(self, prompt: str, *, secret: bool = False) -> str:
        """Read the next line, without its line end.

        Raises:
            Left: the input has ended, or Ctrl+C was pressed.
        """
        indent = prompt[: len(prompt) - len(prompt.lstrip(" "))]
        prompt = f"{indent}{reveal(' '.join(prompt.split()))} "
        try:
            if secret:
                return getpass.getpass(prompt, stream=sys.stderr)
            print_aside(prompt, end="")
            line = sys.stdin.readline()
        except (EOFError, KeyboardInterrupt):
            raise Left from None
        if not line:
            raise Left
        return line.rstrip("\r\n")

    def pick(self, prompt: str, ways: Mapping[str, T]) -> T | None:
        """Ask for a letter and return its value; None for an empty line."""
        while True:
            typed = self.ask(prompt).strip().lower()
            if not typed:
                return None
            if typed in ways:
                return ways[typed]
            self.show(f"  ! Please type {_listed(list(ways))}, or nothing.")

    def agrees(self, prompt: str) -> bool:
        """Ask yes or no, and return whether the person agrees; an empty line means no."""
        return self.ask(f"{prompt} [y/N]").strip().lower() in ("y", "yes")


class Filling:
    """A form, asked field by field. Fields with an error are asked again; other fields are not changed."""

    def __init__(self, terminal: Terminal, form: Form) -> None:
        self._terminal = terminal
        self._root = form.fields
        self._kept: dict[str, Draft] = {}
        self._wrong: list[FieldError] = []

    def drafts(self, errors: Sequence[FieldError] = ()) -> Draft:
        """Ask for all fields, or only for the fields of ``errors``, and return the input.

        Raises:
            Left: the person stopped.
        """
        self._wrong = list(errors)
        self.show_errors(errors)
        return self._field(self._root, self._root.id, 0)

    def show_errors(self, errors: Sequence[FieldError]) -> None:
        """Print the errors that belong to no field."""
        for error in errors:
            if error.field is None:
                self._terminal.show(f"  ! {error.message}")

    def _field(self, node: Node, at: str, depth: int) -> Draft:
        if node.read_only or isinstance(node, Const):
            value = node.const if isinstance(node, Const) else node.shows
            if value is not ABSENT and not node.secret and f"shown {node.id}" not in self._kept:
                self._kept[f"shown {node.id}"] = True
                self._terminal.show(f"{_indent(depth)}{node.label}: {label_of(value)}  (fixed)")
            return None
        if isinstance(node, Object) and self._is_wanted(node, at, depth):
            fields = {
                each.key: self._field(
                    each, f"{at}/{step_of(each.key)}", depth + (depth > 0 or at != self._root.id)
                )
                for each in node.fields
            }
            return {"fields": fields}
        if isinstance(node, Object):
            return self._kept.get(at)
        inner_prefixes = (f"{at}/", f"{at}|")
        wrong = [
            e
            for e in self._wrong
            if e.field is not None and (e.field == at or e.field.startswith(inner_prefixes))
        ]
        if at in self._kept and not wrong:
            return self._kept[at]
        for error in wrong:
            if error.field != at and isinstance(node, Rows):
                continue  # the field inside shows the error
            self._terminal.show(f"{_indent(depth)}! {node.label or 'The answer'}: {error.message}")
        draft = self._kept[at] = self._ask(node, at, depth)
        return draft

    def _is_wanted(self, node: Object, at: str, depth: int) -> bool:
        """Whether the person fills in an optional group of fields."""
        is_row = at.rpartition("/")[2].isdecimal()
        if node.label and at != self._root.id and not is_row:
            self._terminal.show(f"{_indent(depth)}{node.label}:")
        if (node.required and not node.nullable) or at == self._root.id or node.value is not ABSENT:
            return True
        if at not in self._kept:
            wanted = self._terminal.agrees(f"{_indent(depth)}Fill in {node.label or 'this field'}?")
            missing = {"null": True} if node.nullable and node.required else None
            self._kept[at] = "wanted" if wanted else missing
        return bool(self._kept[at] == "wanted")

    def _ask(self, node: Node, at: str, depth: int) -> Draft:
        match node:
            case Choice():
                return self._choice(node, depth)
            case Rows():
                return self._ask_again(node, at, depth) or self._rows(node, at, depth)
            case Map():
                return self._map(node, at, depth)
            case Parts():
                parts = [
                    self._field(each, f"{at}/{index}", depth + 1)
                    for index, each in enumerate(node.parts)
                ]
                return {"parts": parts}
            case Union():
                return self._union(node, at, depth)
            case Leaf():
                return self._leaf(node, depth)
            case _:
                typed = self._terminal.ask(self._prompt(node, depth, "JSON"))
                return {"json": {"text": typed}} if typed.strip() else None

    def _leaf(self, node: Leaf, depth: int) -> Draft:
        if node.kind == "bool":
            known = {"y": True, "yes": True, "n": False, "no": False}
            picked = self._terminal.pick(self._prompt(node, depth, "y or n"), known)
            return None if picked is None else {"bool": picked}
        many = (node.multiline or node.kind == "code") and not node.secret
        words = f"end with a line that contains only {LAST_LINE}" if many else ""
        prompt = self._prompt(node, depth, words)
        typed = self._terminal.ask(prompt, secret=node.secret)
        if not typed:
            return None
        if typed == NO_VALUE and node.nullable:
            return {"null": True}
        if node.kind == "file":
            return self._file(node, typed, depth)
        lines = [typed]
        while many and lines[-1] != LAST_LINE:
            lines.append(self._terminal.ask("  |"))
        return {"text": "\n".join(lines[:-1] if many else lines)}

    def _file(self, node: Leaf, typed: str, depth: int) -> Draft:
        try:
            data = Path(typed).expanduser().read_bytes()
        except OSError as error:
            self._terminal.show(f"{_indent(depth)}! {typed!r} cannot be read: {error.strerror}")
            return self._leaf(node, depth)
        return {"file": base64.b64encode(data).decode("ascii")}

    def _choice(self, node: Choice, depth: int) -> Draft:
        several = node.kind == "multi"
        show_choices(self._terminal, node, depth)
        other = ", or another answer" if node.other else ""
        words = f"numbers with commas{other}" if several else f"a number{other}"
        while True:
            typed = self._terminal.ask(self._prompt(node, depth, words, label="")).strip()
            if not typed:
                return None
            if typed == NO_VALUE and (node.nullable or several):
                return {"null": True} if node.nullable else {"options": []}
            draft = self._chosen(node, typed)
            if draft is not None:
                return draft
            self._terminal.show(
                f"{_indent(depth)}! {typed!r} is not an option. Type 1 to {len(node.options)}."
            )

    @staticmethod
    def _chosen(node: Choice, typed: str) -> Draft:
        """The draft of the input; None if the input is not one of the options."""
        given = typed.split(",") if node.kind == "multi" else [typed]
        numbers, others = [], []
        for each in filter(None, map(str.strip, given)):
            if each.isdecimal() and 1 <= int(each) <= len(node.options):
                numbers.append(int(each) - 1)
            elif node.other is None:
                return None
            else:
                others.append(each)
        if node.kind == "multi":
            return {"options": numbers, **({"others": others} if others else {})}
        return {"other": others[0]} if others else {"option": numbers[0]}

    def _ask_again(self, node: Rows, at: str, depth: int) -> Draft:
        """Ask again only for the errors in new items of a list, and return the whole list."""
        typed = self._kept.get(at)
        if not isinstance(typed, dict) or any(error.field == at for error in self._wrong):
            return None
        rows = [
            row
            if row["from"] is not None
            else {**row, "draft": self._field(node.item, f"{at}/{index}", depth + 1)}
            for index, row in enumerate(typed["rows"])
        ]
        return {"rows": rows}

    def _rows(self, node: Rows, at: str, depth: int) -> Draft:
        before: list[Draft] = []
        self._terminal.show(f"{_indent(depth)}{node.label or 'A list'}:")
        if node.rows:
            for row in node.rows:
                self._terminal.show(f"{_indent(depth)}  - {label_of(row.shows)}")
            if not self._terminal.agrees(f"{_indent(depth)}Change this list?"):
                return None
            for index, row in enumerate(node.rows):
                if self._terminal.agrees(f"{_indent(depth)}  Keep {label_of(row.shows)}?"):
                    before.append({"from": index, "draft": None})
        rows = before
        while self._terminal.agrees(f"{_indent(depth)}  Add {'another' if rows else 'an item'}?"):
            spot = f"{at}/{len(rows)}"
            self._forget(spot)
            rows.append({"from": None, "draft": self._field(node.item, spot, depth + 1)})
        return None if not rows and not node.rows and not node.required else {"rows": rows}

    def _map(self, node: Map, at: str, depth: int) -> Draft:
        self._terminal.show(f"{_indent(depth)}{node.label or 'Names and values'}:")
        shown = node.shows if isinstance(node.shows, Mapping) else {}
        if shown and not self._terminal.agrees(f"{_indent(depth)}{label_of(shown)}: change it?"):
            return None
        entries: list[Draft] = [
            {"from": key, "key": key, "draft": None}
            for key in node.entries
            if self._terminal.agrees(f"{_indent(depth)}  Keep {key!r}?")
        ]
        while name := self._terminal.ask(f"{_indent(depth)}  Name (Enter to finish):").strip():
            spot = f"{at}/{len(entries)}"
            self._forget(spot)
            value = self._field(node.item, spot, depth + 1)
            entries.append({"from": None, "key": name, "draft": value})
        return None if not entries and not shown and not node.required else {"entries": entries}

    def _union(self, node: Union, at: str, depth: int) -> Draft:
        self._terminal.show(f"{_indent(depth)}{node.label or 'Which kind?'}")
        for number, branch in enumerate(node.branches, 1):
            self._terminal.show(f"{_indent(depth)}  {number}) {branch.label}")
        ways = {str(number): number - 1 for number in range(1, len(node.branches) + 1)}
        picked = self._terminal.pick(self._prompt(node, depth, "a number", label=""), ways)
        if picked is None:
            return (
                {"null": True} if node.nullable and node.value is ABSENT and node.required else None
            )
        spot = f"{at}|{picked}"
        self._forget(spot)
        return {"branch": picked, "draft": self._field(node.branches[picked].node, spot, depth + 1)}

    def _forget(self, at: str) -> None:
        for each in [k for k in self._kept if k == at or k.startswith((f"{at}/", f"{at}|"))]:
            del self._kept[each]

    def _prompt(self, node: Node, depth: int, words: str = "", *, label: str | None = None) -> str:
        """The prompt: label, format, and the value that an empty line keeps."""
        parts = [words or _WORDS.get(node.kind, ""), _FORMATS.get(getattr(node, "format", ""), "")]
        parts.append(describe_limits(node.limits))
        parts += ["optional"] if not node.required else []
        parts += [f"{NO_VALUE} for none"] if node.nullable else []
        name = (node.label or "Answer") if label is None else label
        hints = ", ".join(filter(None, parts))
        shown = ""
        if node.shows is not ABSENT:
            shown = " [kept]" if node.secret else f" [{label_of(node.shows)}]"
        if node.help and label is None:
            self._terminal.show(f"{_indent(depth)}{node.help}")
        text = f"{name} ({hints})" if hints and name else name or f"({hints})"
        return f"{_indent(depth)}{text}{shown}:"


def show_choices(terminal: Terminal, node: Choice, depth: int = 0) -> None:
    """Print the choices with their numbers."""
    terminal.show(f"{_indent(depth)}{node.label or 'Choose'}:")
    for number, option in enumerate(node.options, 1):
        help_ = f"  {option.help}" if option.help else ""
        terminal.show(f"{_indent(depth)}  {number}) {option.label}{help_}")


def _indent(depth: int) -> str:
    return "  " * depth


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
