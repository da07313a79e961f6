"""``%load_ext nbagent``: ``%%agent`` runs an agent of the notebook, with the notebook's variables in the prompt.

The cell blocks until the answer arrives. The run's event loop is in another thread, so that forms work meanwhile.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import keyword
import re
import reprlib
import shlex
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NoReturn

from IPython.core.error import UsageError as CellError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from pydantic import BaseModel

from nbagent.core.agent import Agent
from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import UsageError, suggest
from nbagent.core.run.run import session_of
from nbagent.core.tools.attachments import File, check_spec, mention
from nbagent.core.tools.tables import frame_of

MAX_VALUE = 4_000
"""Characters of one variable in a prompt."""
HELP = """\
%%agent [name] [-o NAME] [--df]      the prompt is the rest of the cell
%agent [-o NAME] [--df] [name] prompt

Sends the prompt to an agent of this notebook and waits for its answer. Without a name, it uses the only agent of the
notebook, else the agent of the newest variable, else the demo.

  -o NAME   store the answer in this variable: typed if the agent has output_type, else as text
  --df      as a DataFrame, if the answer has rows
  --help    this text

{variable}, {variable.attribute} and {variable["key"]} in the prompt are replaced by their values: a table by its shape,
columns and first rows, a figure or image by a picture. {{variable}} stays as text, in single braces."""

_BRACES = re.compile(
    r"""\{\{(?P<kept>[^\W\d]\w*[^{}\n]*)\}\}
      | \{(?P<value>[^\W\d]\w*(?:\.[^\W\d]\w*|\[[^\[\]{}\n]*\])*)(?P<how>(?:![rsa])?(?::[^{}\n]*)?)\}""",
    re.VERBOSE,
)


class _Parser(argparse.ArgumentParser):
    """A parser of a magic's line, whose errors are errors of the cell."""

    def error(self, message: str) -> NoReturn:
        raise CellError(f"%%agent: {message}. For help: %agent --help")


def _parsed(line: str) -> argparse.Namespace:
    """The options of a line, and its other words: the agent's name, or the prompt.

    Raises:
        CellError: the line is not valid.
    """
    try:
        tokens = shlex.split(line)
    except ValueError as error:
        raise CellError(f"%%agent: {line.strip()!r}: {error}") from error
    parser = _Parser(prog="%%agent", add_help=False, allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("-o", dest="into", metavar="NAME")
    parser.add_argument("--df", action="store_true", dest="as_table")
    parser.add_argument("-h", "--help", action="store_true")
    asked = parser.parse_intermixed_args(tokens)
    name = asked.into
    if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
        raise CellError(f"%%agent: -o takes the name of a variable, got {name!r}")
    return asked


_OPTIONS = re.compile(r"\s*(?:(?:-o\s+\S+|-\S+)(?:\s+|$))*")
"""The part of a line before the prompt."""


@magics_class
class AgentMagics(Magics):
    """The magics of nbagent."""

    @no_var_expand
    @line_cell_magic
    def agent(self, line: str, cell: str | None = None) -> Any:
        """Ask an agent of this notebook; see %agent --help."""
        if cell is None:
            options = _OPTIONS.match(line)
            end = 0 if options is None else options.end()
            asked, prompt = _parsed(line[:end]), line[end:].strip()
            named: str | None = None
            first, _, rest = prompt.partition(" ")
            if isinstance(self._names.get(first), Agent):
                named, prompt = first, rest.strip()
        else:
            asked, prompt = _parsed(line), cell.strip()
            if len(asked.words) > 1:
                raise CellError(
                    f"%%agent takes the name of one agent, got {' '.join(asked.words)!r}. Write the prompt below that line"
                )
            named = asked.words[0] if asked.words else None
        if asked.help:
            print(HELP)  # noqa: T201 - it was asked for
            return None
        if not prompt:
            raise CellError("%%agent: the prompt is missing. Write it below, or after %agent")
        agent = self._agent(named)
        if asked.as_table:
            _pandas()  # before the answer is paid for
        run = agent.run(_filled(prompt, self._names), background=True)
        if not session_of(run).attended:  # nobody is there to see a live card
            session_of(run).host.display(run)
        result = run.wait()
        answer = result.text if agent.output_type is None else result.output
        if asked.into is not None:
            self._names[asked.into] = answer  # kept also if it has no rows
        table = table_of(answer) if asked.as_table else None
        if asked.into is None:
            return table
        if asked.as_table:
            self._names[asked.into] = table
        return None

    @property
    def _names(self) -> dict[str, Any]:
        assert self.shell is not None  # the shell has registered this object
        names: dict[str, Any] = self.shell.user_ns
        return names

    def _agents(self) -> dict[str, Agent]:
        """The agents of the notebook by name, each once under its first name, in the order of their definition."""
        found = {
            name: one
            for name, one in self._names.items()
            if isinstance(one, Agent) and name[0] != "_"
        }
        first = {id(one): name for name, one in reversed(found.items())}
        return {name: one for name, one in found.items() if first[id(one)] == name}

    def _agent(self, name: str | None) -> Agent:
        """The agent of this name; without a name, the agent of the newest variable, or the demo.

        Raises:
            CellError: no agent has this name.
        """
        agents = self._agents()
        if name is not None:
            named = self._names.get(name)
            if not isinstance(named, Agent):
                problem = "no agent" if name in self._names else "not defined"
                known = f". Agents of this notebook: {', '.join(agents)}" if agents else ""
                raise CellError(f"%%agent: {name!r} is {problem}{suggest(name, agents) or known}")
            return named
        if not agents:
            _print(
                "No agent is defined here, so the demo answers. To define one: agent = nb.Agent('gpt-5.1')"
            )
            return Agent("demo", name="demo")
        last = list(agents)[-1]
        if len(agents) > 1:
            others = ", ".join(list(agents)[:-1])
            _print(
                f"{last} answers, because its variable is the newest. To choose another, add its name to %%agent: {others}"
            )
        return agents[last]


def _print(text: str) -> None:
    print(escaped(text))  # noqa: T201 - for the person who ran the cell


# --- the notebook's variables in a prompt


def _filled(prompt: str, names: Mapping[str, Any]) -> list[Any]:
    """The prompt with its braces replaced by values: text and pictures in order, then descriptions of tables.

    Raises:
        CellError: a value in braces cannot be read or formatted.
    """
    parts: list[Any] = [""]
    named: dict[str, File] = {}
    """Descriptions of tables, by the names that replace the tables in the text."""
    end = 0
    for found in _BRACES.finditer(prompt):
        parts[-1] += prompt[end : found.start()]
        end = found.end()
        part = f"{{{found['kept']}}}" if found["kept"] else _value(found, names)
        if isinstance(part, str):
            parts[-1] += part
        elif (part.name or "").startswith("@"):
            parts[-1] += named.setdefault(str(part.name), part).name
        else:
            parts += [part, ""]
    parts[-1] += prompt[end:]
    return [*(p for p in parts if not isinstance(p, str) or p.strip()), *named.values()]


def _value(found: re.Match[str], names: Mapping[str, Any]) -> str | File:
    """The value of an expression in braces, as text or as a file."""
    code, how = found["value"], found["how"]
    try:
        value = _read_in(ast.parse(code, mode="eval").body, names)
        if how:
            check_spec(how.partition(":")[2])
            return _shortened(f"{{{how}}}".format(value))
        if frame_of(value) is not None:
            return mention(value, code)
        text = value if isinstance(value, str) else _short.repr(value)
        return _picture(value) or _shortened(text)
    except Exception as error:
        raise CellError(
            f"%%agent: {{{code}{how}}} in the prompt: {type(error).__name__}: {error}. To keep it as text, write "
            f"{{{{{code}{how}}}}}"
        ) from error


def _read_in(node: ast.AST | None, names: Mapping[str, Any]) -> Any:
    """The value of an expression without calls, because a prompt may be pasted text.

    Raises:
        ValueError: the expression has more than names, attributes, keys and slices.
    """
    match node:
        case None:
            return None
        case ast.Constant(value=constant):
            return constant
        case ast.Name(id=name):
            if name not in names:
                raise NameError(f"name {name!r} is not defined")
            return names[name]
        case ast.Attribute(value=of, attr=name) if not name.startswith("__"):
            return getattr(_read_in(of, names), name)
        case ast.Subscript(value=of, slice=key):
            return _read_in(of, names)[_read_in(key, names)]
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(*(_read_in(each, names) for each in (lower, upper, step)))
        case ast.Tuple(elts=parts):
            return tuple(_read_in(each, names) for each in parts)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case _:
            raise ValueError("only names, attributes, keys and slices are allowed here")


class _Short(reprlib.Repr):
    """Bounded reprs; dicts keep their order."""

    def repr_dict(self, x: Mapping[Any, Any], level: int) -> str:
        """The repr of a dict in its own order, with at most ``maxdict`` items."""
        if level <= 0:
            return "{...}" if x else "{}"
        shown = [
            f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}"
            for key, value in islice(x.items(), self.maxdict)
        ]
        return f"{{{', '.join([*shown, *(['...'] if len(x) > self.maxdict else [])])}}}"


_short = _Short()
_short.maxlevel = 6
_short.maxlist = _short.maxtuple = _short.maxset = _short.maxfrozenset = _short.maxdict = 100
_short.maxstring = _short.maxother = _short.maxlong = MAX_VALUE // 2


def _shortened(text: str) -> str:
    if len(text) <= MAX_VALUE:
        return text
    half = MAX_VALUE // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


def _picture(value: Any) -> File | None:
    """A figure or image as a picture; None for other values, such as arrays."""
    if hasattr(value, "dtype") or isinstance(value, bytes | bytearray | memoryview | Iterable):
        return None
    try:
        file = File(value)
    except UsageError:
        return None
    return file if file.media_type.startswith("image/") else None


# --- an answer as a table


def table_of(answer: Any) -> Any:
    """An answer that consists of rows, as a DataFrame.

    Raises:
        CellError: the answer does not consist of rows, or pandas is missing.
    """
    if isinstance(answer, str):  # JSON, or text with one code block that is JSON
        blocks = re.findall(r"```\w*\n(.*?)```", answer, re.DOTALL)
        try:
            value = json.loads(blocks[0] if len(blocks) == 1 else answer)
        except ValueError:
            value = None
    else:
        value = _plain(answer)
    rows = _rows(value)
    if rows is None:
        raise CellError(
            "%%agent --df: the answer has no rows. Use an agent with output_type=list[Row], where Row is a pydantic "
            "model, a dataclass or a TypedDict"
        )
    return _pandas().DataFrame(rows)


def _pandas() -> Any:
    try:
        import pandas as pd  # noqa: PLC0415 - only who asks for a table needs it
    except ImportError as error:
        raise CellError("%%agent --df needs pandas: pip install pandas") from error
    return pd


def _plain(value: Any) -> Any:
    """The value with models and dataclasses as dicts of their fields."""
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [_plain(each) for each in value]
    return value


def _rows(value: Any) -> list[Any] | None:
    """The rows of a list, or of the only list in a mapping; None if there are no rows."""
    if isinstance(value, Mapping):
        lists = [each for each in value.values() if isinstance(each, list)]
        value = lists[0] if len(lists) == 1 else None
    if not isinstance(value, list):
        return None
    return value if all(isinstance(each, Mapping | list | tuple) for each in value) else None


# --- in IPython

_QUESTION = re.compile(r"(\s*)%agent[ \t]+(\S.*\?)\s*")


def _asked_with_a_question_mark(lines: list[str]) -> list[str]:
    """The cell's lines; ``%agent prompt?``, which IPython would read as a request for help, becomes a call."""

    def line_magic(found: re.Match[str]) -> str:
        return f"{found[1]}get_ipython().run_line_magic('agent', {found[2]!r})\n"

    matches = [(line, _QUESTION.fullmatch(line)) for line in lines]
    return [line if found is None else line_magic(found) for line, found in matches]


def register(shell: Any) -> None:
    """Add the magics to a shell, with completion of agent names and options."""
    magics = AgentMagics(shell)
    shell.register_magics(magics)

    def complete(_shell: Any, event: Any) -> list[str]:
        words = [*magics._agents(), "-o", "--df", "--help"]  # noqa: SLF001 - its own
        return [word for word in words if word.startswith(event.symbol)]

    shell.input_transformers_cleanup.append(_asked_with_a_question_mark)
    for key in ("%%agent", "%agent"):
        shell.set_hook("complete_command", complete, str_key=key)
