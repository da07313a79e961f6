"""Questions in a terminal: lines, secrets, menus, and the fields of a short form."""

from __future__ import annotations

import base64
import getpass
import os
import re
import select
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from nbagent.core.base.controls import escaped
from nbagent.forms.form import Form
from nbagent.forms.nodes import Choice, Const, Draft, Leaf, Node, Object
from nbagent.forms.schema.fields import describe_limits
from nbagent.forms.schema.shape import label_of
from nbagent.forms.values import ABSENT
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.wire import FieldError

from .output import print_aside

T = TypeVar("T")

POLL = 0.1
"""Seconds between two looks at whether reading was stopped."""
NO_VALUE = "-"
"""The input that means no value, where a field is nullable."""
_WORDS = {
    "int": "an integer",
    "num": "a number",
    "decimal": "a number",
    "duration": "such as 1:30:00",
    "file": "the path of a file",
}
_FORMATS = {
    "date": "such as 2026-11-30",
    "date-time": "such as 2026-11-30T14:30Z",
    "time": "such as 14:30",
}


class Left(Exception):
    """The person stopped: the input ended, or Ctrl+C was pressed."""

    by_keyboard = False
    """Whether Ctrl+C was pressed."""


class Terminal:
    """A terminal with a person; all output goes to standard error."""

    @property
    def is_there(self) -> bool:
        """Whether a person can type."""
        return sys.stdin.isatty()

    def show(self, text: str = "") -> None:
        """Print text, with hidden characters revealed, as a page shows it."""
        print_aside(reveal(text))

    def ask(
        self, prompt: str, *, secret: bool = False, fresh: bool = False, menu: Sequence[str] = ()
    ) -> str:
        """Read the next line, without its line end; if ``fresh``, what was typed before the prompt does not count.

        The arrow keys go through the lines of a menu, such as ``a) Approve``; its answer is ``a``.

        Raises:
            Left: the input has ended, or Ctrl+C was pressed.
        """
        if fresh:
            _drop_typed()
        indent = prompt[: len(prompt) - len(prompt.lstrip(" "))]
        prompt = f"{indent}{reveal(' '.join(prompt.split()))} "
        lines = {reveal(" ".join(line.split())): line.partition(")")[0] for line in menu}
        try:
            if secret:
                line = getpass.getpass(prompt, stream=sys.stderr)
            else:
                line = _line(prompt, list(lines))
        except (EOFError, KeyboardInterrupt) as error:
            left = Left()
            left.by_keyboard = isinstance(error, KeyboardInterrupt)
            raise left from None
        line = _KEYS.sub("", line).rstrip("\r\n")
        return lines.get(line, line)

    def pick(self, prompt: str, ways: Mapping[str, T], menu: Sequence[str] = ()) -> T | None:
        """Ask for a letter and return its value; None for an empty line."""
        while True:
            typed = self.ask(prompt, fresh=True, menu=menu).strip().lower()
            if not typed:
                return None
            if typed in ways:
                return ways[typed]
            self.show(f"  ! Please type {_listed(list(ways))}, or nothing.")

    def agrees(self, prompt: str) -> bool:
        """Ask yes or no, and return whether the person agrees; an empty line means no."""
        return self.ask(f"{prompt} [y/N]", fresh=True).strip().lower() in ("y", "yes")


class StoppableTerminal(Terminal):
    """A terminal that another thread reads, until ``stopped`` is set. Not on Windows."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def ask(
        self,
        prompt: str,
        *,
        secret: bool = False,
        fresh: bool = False,
        menu: Sequence[str] = (),  # noqa: ARG002 - Terminal
    ) -> str:
        """Read the next line, as ``Terminal`` does, without a line editor, which could not be stopped.

        Raises:
            Left: the input has ended, or reading was stopped.
            OSError: this system cannot wait for a key.
        """
        if fresh:
            _drop_typed()
        line = ""
        with _without_echo() if secret else nullcontext():
            print_aside(f"{reveal(' '.join(prompt.split()))} ", end="")
            while not self.stopped.is_set():
                if select.select([sys.stdin], [], [], POLL)[0]:
                    line = sys.stdin.readline()
                    break
        if secret or not line:
            self.show()  # nothing else has ended the prompt's line
        if not line:
            raise Left
        return _KEYS.sub("", line).rstrip("\r\n")


_KEYS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)")
"""What a terminal sends for keys such as arrows, and around pasted text."""


def _line(prompt: str, menu: Sequence[str]) -> str:
    """The next line, typed in Python's line editor if it can draw here; its history is the menu.

    Raises:
        EOFError: the input has ended.
    """
    readline: Any = None  # not on Windows, nor in every Python
    draws = sys.stdin.isatty() and sys.stdout.isatty() and sys.stdout.encoding == "utf-8"
    if draws and os.environ.get("TERM", "dumb") != "dumb":
        with suppress(ImportError):
            readline = import_module("readline")
    if readline is None:
        print_aside(prompt, end="")
        if not (line := sys.stdin.readline()):
            raise EOFError
        return line
    own = [readline.get_history_item(at + 1) for at in range(readline.get_current_history_length())]
    try:
        _set_history(readline, menu)
        return input(escaped(f"↑ or {prompt}" if menu else prompt))
    finally:
        _set_history(readline, own)  # of an interactive shell


def _set_history(readline: Any, lines: Sequence[str]) -> None:
    readline.clear_history()
    for line in lines:
        readline.add_history(line)


@contextmanager
def _without_echo() -> Iterator[None]:
    """Show nothing of what is typed."""
    import termios  # noqa: PLC0415 - not on Windows

    before = termios.tcgetattr(sys.stdin)
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _drop_typed() -> None:
    """Forget what was typed or pasted before a question was shown, so that it approves nothing."""
    with suppress(ImportError, OSError, ValueError):  # Windows, or not a terminal
        import termios  # noqa: PLC0415 - not on Windows

        termios.tcflush(sys.stdin, termios.TCIFLUSH)


class Stopped(Exception):
    """This answer cannot be finished, for the reasons in ``args``; the person may choose another."""


def is_short(root: Node) -> bool:
    """Whether a terminal asks for all of a form: scalars, choices and confirmations, in at most one group."""
    fields = root.fields if isinstance(root, Object) and root.more is None else (root,)
    return all(each.secret or _is_line(each) for each in fields)


def _is_line(node: Node) -> bool:
    is_text = isinstance(node, Leaf) and node.kind not in ("code", "json", "widget")
    has_lines = isinstance(node.shows, str) and "\n" in node.shows
    return node.read_only or isinstance(node, Choice | Const) or (is_text and not has_lines)


class Filling:
    """A short form, asked field by field. Fields with an error are asked again; other fields are not changed."""

    def __init__(self, terminal: Terminal, form: Form) -> None:
        self._terminal = terminal
        self._root = form.fields
        self._kept: dict[str, Draft] = {}

    def drafts(self, errors: Sequence[FieldError]) -> Draft:
        """Ask for all fields, or only for the fields of ``errors``, and return the input.

        Raises:
            Left: the person stopped.
            Stopped: none of the errors belongs to a field.
        """
        if errors and all(error.field is None for error in errors):
            raise Stopped(*(error.message for error in errors))
        if not isinstance(self._root, Object):
            return self._field(self._root, errors)
        return {"fields": {each.key: self._field(each, errors) for each in self._root.fields}}

    def _field(self, node: Node, errors: Sequence[FieldError]) -> Draft:
        wrong = [error for error in errors if error.field == node.id]
        for error in wrong:
            self._terminal.show(f"! {node.label or 'The answer'}: {error.message}")
        if wrong or node.id not in self._kept:
            self._kept[node.id] = ask_field(self._terminal, node)
        return self._kept[node.id]


def ask_field(terminal: Terminal, node: Node) -> Draft:
    """Ask for one scalar, choice or secret, and return the input; None if it stays as it is."""
    if node.read_only or isinstance(node, Const):
        value = node.const if isinstance(node, Const) else node.shows
        if value is not ABSENT and not node.secret:
            terminal.show(f"{node.label}: {label_of(value)}  (fixed)")
        return None
    if isinstance(node, Choice) and not node.secret:
        return _choice(terminal, node)
    if node.kind == "bool":
        known = {"y": True, "yes": True, "n": False, "no": False}
        picked = terminal.pick(_prompt(terminal, node, "y or n"), known)
        return None if picked is None else {"bool": picked}
    typed = terminal.ask(_prompt(terminal, node), secret=node.secret)
    if not typed:
        return None
    if typed == NO_VALUE and node.nullable:
        return {"null": True}
    if not isinstance(node, Leaf):
        return {"json": {"text": typed}}
    return {"text": typed} if node.kind != "file" else _file(terminal, node, typed)


def _file(terminal: Terminal, node: Leaf, typed: str) -> Draft:
    try:
        data = Path(typed).expanduser().read_bytes()
    except OSError as error:
        terminal.show(f"! {typed!r} cannot be read: {error.strerror}")
        return ask_field(terminal, node)
    return {"file": base64.b64encode(data).decode("ascii")}


def _choice(terminal: Terminal, node: Choice) -> Draft:
    several = node.kind == "multi"
    menu = show_choices(terminal, node)
    other = ", or another answer" if node.other else ""
    words = f"numbers with commas{other}" if several else f"a number{other}"
    while True:
        typed = terminal.ask(_prompt(terminal, node, words, label=""), menu=menu).strip()
        if not typed:
            return None
        if typed == NO_VALUE and (node.nullable or several):
            return {"null": True} if node.nullable else {"options": []}
        draft = _chosen(node, typed)
        if draft is not None:
            return draft
        terminal.show(f"! {typed!r} is not an option. Type 1 to {len(node.options)}.")


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


def _prompt(terminal: Terminal, node: Node, words: str = "", *, label: str | None = None) -> str:
    """The prompt: label, format, and the value that an empty line keeps."""
    shown = ""
    if node.shows is not ABSENT:
        shown = " [kept]" if node.secret else f" [{label_of(node.shows)}]"
    if node.help and label is None:
        terminal.show(node.help)
    name = (node.label or "Answer") if label is None else label
    nothing = f"{NO_VALUE} for none" if node.nullable else ""
    hints = ", ".join(filter(None, (words or _WORDS.get(node.kind, ""), hints_of(node), nothing)))
    text = f"{name} ({hints})" if hints and name else name or f"({hints})"
    return f"{text}{shown}:"


def hints_of(node: Node) -> str:
    """The format and the limits of a field, and whether it is optional."""
    format_ = _FORMATS.get(getattr(node, "format", ""), "")
    parts = (format_, describe_limits(node.limits), "" if node.required else "optional")
    return ", ".join(filter(None, parts))


def show_choices(terminal: Terminal, node: Choice) -> list[str]:
    """Print the choices with their numbers, and return their lines."""
    terminal.show(f"{node.label or 'Choose'}:")
    menu = [f"{number}) {option.label}" for number, option in enumerate(node.options, 1)]
    for line, option in zip(menu, node.options, strict=True):
        terminal.show(f"  {line}{f'  {option.help}' if option.help else ''}")
    return menu


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
