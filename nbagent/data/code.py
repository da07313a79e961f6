"""``run_python``: a tool that runs a model's Python in the user's own namespace, after approval.

This is not a sandbox: the code can do everything that the user can do in the notebook. The protection is the user,
who sees and may change each piece of code before it runs. Only the simple ways around the user are blocked: the code
cannot answer a question (see ``core/base/origin.py``), and rules that the code changes are restored.
"""

from __future__ import annotations

import _thread
import ast
import asyncio
import contextlib
import inspect
import itertools
import linecache
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Generator, Iterable, Iterator, Mapping
from copy import copy
from html import escape
from types import CodeType, FrameType, ModuleType, TracebackType, coroutine
from typing import Annotated, Any

from pydantic import AfterValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from nbagent.core.base.errors import NbagentError
from nbagent.core.base.hidden import checked_code
from nbagent.core.base.memory import Remembered
from nbagent.core.base.messages import dumps
from nbagent.core.base.origin import MODEL, MODEL_FILE, PERSON, expect_code, marked
from nbagent.core.hooks import hooks
from nbagent.core.registry import all_known
from nbagent.core.run.host import current_host
from nbagent.core.tools.call_output import current_call
from nbagent.core.tools.define import tool
from nbagent.core.tools.policy import Rule
from nbagent.core.tools.result_text import for_model, shortened_text
from nbagent.core.tools.spec import Budget
from nbagent.core.tools.tool import Tool, ToolResult

from .table import some

MAX_RESULT = 20_000
"""Characters of the printed text, and of the value, that the model receives."""
ERROR_LINES = 12
"""Lines of an error that the model receives."""
MAX_LINE = 300
PRESS_AGAIN = 0.1
"""Seconds after which a signal that ends code is sent again, if it was not handled."""

_REACHING = frozenset({"open", "exec", "eval", "compile", "__import__", "input", "breakpoint"})
"""Built-in functions that reach beyond the variables that they receive."""
_RULES = ("policy", "remembered", "middleware", "budget")
"""Attributes of an agent or flow with its rules and limits."""
_SCOPES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
"""Nodes with a scope of their own."""
_numbers = itertools.count(1)


class _InForms:
    """Shows a string as Python in forms only, because not every model's server accepts ``contentMediaType``."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        return {**schema, "contentMediaType": "text/x-python"} if hooks.makes_form() else schema


class CodeError(NbagentError):
    """An error in a model's code; the message is the error with a shortened traceback."""

    says_all = True


def code_tool() -> Tool[..., Any]:
    """The tool ``run_python``; each call needs approval, even if a rule allows the call."""
    expect_code(has_marks=current_host().marks_person())
    made: Tool[..., Any] = tool(
        approval=True, editable=["code"], preview=reach_of, thread=False, max_output=2 * MAX_RESULT
    )(run_python)
    made.options = made.options._replace(always_needs_approval=True)
    return made


def run_python(
    code: Annotated[str, AfterValidator(checked_code), _InForms()],
) -> ToolResult | Awaitable[ToolResult]:
    """Run Python in this notebook, with its variables.

    The user approves it first. You receive the printed text, the value of the last expression, and the names of variables that were created
    or changed. The user sees figures and tables. Lines that begin with % or ! do not work. If the code fails, you
    receive the error.
    """
    return _Execution(code).run()


class Reach:
    """The variables and modules that code may touch: a sentence, and a list of each kind."""

    def __init__(self, sentences: str, lists: Mapping[str, Iterable[str]]) -> None:
        self._sentences = sentences
        self._lists = {heading: some([*names]) for heading, names in lists.items() if names}

    def __str__(self) -> str:
        return "\n".join([self._sentences, *(f"{k}: {v}" for k, v in self._lists.items())])

    def _repr_html_(self) -> str:
        items = (
            f"<li>{escape(heading)}: {escape(text)}</li>" for heading, text in self._lists.items()
        )
        return f"<p>{escape(self._sentences)}</p><ul>{''.join(items)}</ul>"


def reach_of(typed: Any) -> Reach:
    """The reach of the code, for the person who approves it."""
    try:
        tree = _parsed(typed.code, "<code>")
    except (SyntaxError, ValueError) as error:
        return Reach(f"{_NO_PYTHON}: {_syntax(error)}", {})
    names, found = _names(), _Touched(tree)
    used = {name: names[name] for name in found.used if name in names and name not in found.set}
    modules = {name for name, value in used.items() if isinstance(value, ModuleType)}
    replaced = [f"{one} (replaces {_kind(names[one])})" for one in found.set if one in names]
    lists = {
        "Uses": [_named(name, value) for name, value in used.items() if name not in modules],
        "Assigns": [*replaced, *(f"{one} (new)" for one in found.set if one not in names)],
        "Modifies in place": [
            one for one in found.modified if one in names and one not in found.set
        ],
        "Deletes": found.deleted,
        "Modules": sorted({*found.imported, *(names[one].__name__ for one in modules)}),
        "Calls": [f"{one}()" for one in found.used if one in _REACHING and one not in names],
    }
    return Reach(_AS_YOU, lists)


_AS_YOU = (
    "It runs in this notebook as you, with access to all your variables, files and connections. The model "
    "receives what it prints, the value of its last line, and the names of the variables that it created or "
    "changed."
)
_NO_PYTHON = "This is not valid Python"


class _Execution:
    """One piece of code, from its text to the model's result."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._file = f"{MODEL_FILE} {next(_numbers)}>"
        self._thread = threading.get_ident()

    def run(self) -> ToolResult | Awaitable[ToolResult]:
        """Run the code in this thread; code with ``await`` runs on the loop that awaits the return value.

        Raises:
            CodeError: the code failed, or is not valid Python.
        """
        lines = self._code.splitlines(keepends=True)
        linecache.cache[self._file] = (len(self._code), None, lines, self._file)
        with self._errors_as_code_errors():
            tree = _parsed(self._code, self._file)
            parts = _parts(tree, self._file, shows=not self._code.rstrip().endswith(";"))
            if any(part.co_flags & inspect.CO_COROUTINE for part in parts):
                return self._awaiting(tree, parts)
        before, value = _Before(tree), None
        with self._errors_as_code_errors(), _protect_rules(), marked(MODEL), _Stop(self._file):
            for part in parts:
                value = eval(part, _names())
        return self._result(value, before)

    async def _awaiting(self, tree: ast.Module, parts: list[CodeType]) -> ToolResult:
        """Run code with ``await`` in a task of its own, which the kernel's stop button can cancel."""
        if threading.get_ident() != self._thread:
            raise CodeError(
                "`await` does not work here: the cell waits for the run (agent.run_sync, run.wait, %%agent), or no person "
                "can answer. Write code without `await`. Nothing was run"
            )

        async def run() -> Any:
            value = None
            # inside the task: a KeyboardInterrupt that leaves a task ends the loop
            with self._errors_as_code_errors(stop), marked(MODEL):
                for part in parts:
                    with _protect_rules():
                        value = eval(part, _names())
                    if part.co_flags & inspect.CO_COROUTINE:
                        value = await _step_by_step(value)
            return value

        before, stop = _Before(tree), _Stop(self._file)
        with self._errors_as_code_errors(stop), stop:
            stop.task = asyncio.ensure_future(run())
            value = await stop.task
        return self._result(value, before)

    def _result(self, value: Any, before: _Before) -> ToolResult:
        """The text for the model, with the value for the person."""
        output = current_call.get()
        printed = "" if output is None else output.printed
        made = before.changes()
        if output is not None and made and value is not None:  # else the text is displayed
            output.write("log", f"{made}\n")  # for the person, in the call's row
        short = for_model(value, MAX_RESULT)
        text = "" if value is None else short if isinstance(short, str) else dumps(short)
        none = "" if printed.strip() or text or made else "It ran and returned no value."
        parts = (shortened_text(printed.rstrip("\n"), MAX_RESULT), text, made, none)
        return ToolResult("\n".join(filter(None, parts)), display=value)

    @contextlib.contextmanager
    def _errors_as_code_errors(self, stop: _Stop | None = None) -> Iterator[None]:
        """Turn every error of the code into a ``CodeError``."""
        try:
            yield
        except CodeError:
            raise
        except asyncio.CancelledError:
            if stop is None or not stop.was_pressed:
                raise  # the run is stopped
            raise CodeError(_STOPPED) from None
        except KeyboardInterrupt as error:
            at = _within(error.__traceback__, self._file)
            where = "" if at is None else f", in line {at.tb_lineno}"
            raise CodeError(f"{_STOPPED}{where}.") from None
        except BaseException as error:  # also SystemExit, which must not end the kernel
            own = _within(error.__traceback__, self._file)
            raise CodeError(self._lines(error)) from error.with_traceback(own)

    def _lines(self, error: BaseException) -> str:
        """The error as text: its message, the lines of the code, and the last line of other code."""
        if isinstance(error, SyntaxError) and error.filename == self._file:
            return f"{_NO_PYTHON}: {_syntax(error)}"
        at = _within(error.__traceback__, self._file)
        trace = traceback.TracebackException(type(error), error, at)
        frames = [*trace.stack]
        own = [each for each in frames[:-1] if each.filename.startswith(MODEL_FILE)]
        stack = traceback.StackSummary.from_list([*own, *frames[-1:]]).format()
        text = "".join([*trace.format_exception_only(), *stack]).strip()
        lines = [line[:MAX_LINE] for line in text.splitlines()]
        if len(lines) > ERROR_LINES:
            first = ERROR_LINES // 2
            lines = [*lines[:first], "  …", *lines[first + 1 - ERROR_LINES :]]
        return "\n".join(lines)


_STOPPED = "A person stopped it"


def _names() -> dict[str, Any]:
    """The namespace of cells, or of a script's main module."""
    return vars(sys.modules["__main__"])


def _parsed(code: str, file: str) -> ast.Module:
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(code, file, "exec", flags, dont_inherit=True)
    assert isinstance(tree, ast.Module)  # as the flags say
    return tree


def _parts(tree: ast.Module, file: str, *, shows: bool) -> list[CodeType]:
    """The code, and separately its last expression, whose value is the result."""
    flags, body = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, tree.body
    last = body[-1] if body and shows else None
    if not isinstance(last, ast.Expr):
        return [compile(tree, file, "exec", flags, dont_inherit=True)]
    first = ast.Module(body[:-1], tree.type_ignores)
    return [
        compile(first, file, "exec", flags, dont_inherit=True),
        compile(ast.Expression(last.value), file, "eval", flags, dont_inherit=True),
    ]


def _syntax(error: SyntaxError | ValueError) -> str:
    if not isinstance(error, SyntaxError):  # a null character
        return str(error)
    line = (error.text or "").strip()[:MAX_LINE]
    jupyter = line.startswith(("%", "!"))
    why = "lines that begin with % or ! only work in Jupyter cells" if jupyter else error.msg
    return f"line {error.lineno}, {why}: {line}"


def _within(at: TracebackType | None, file: str) -> TracebackType | None:
    """The traceback from the first frame in ``file``; None if there is no such frame."""
    while at is not None and at.tb_frame.f_code.co_filename != file:
        at = at.tb_next
    return at


@contextlib.contextmanager
def _protect_rules() -> Iterator[None]:
    """Restore rules of any agent or flow that the code changes, and raise an error that names them."""
    kept = [_Rules(one) for one in all_known()]
    try:
        yield
    finally:
        with marked(PERSON):
            changed = [f"{rule} of {one.name}" for one in kept for rule in one.restore()]
        if changed and not isinstance(sys.exc_info()[1], asyncio.CancelledError):
            raise CodeError(f"A model's code cannot change rules. Restored: {', '.join(changed)}")


@coroutine
def _step_by_step(awaited: Awaitable[Any]) -> Generator[Any, Any, Any]:
    """Await a value, with rules protected during each step; changes between the steps are made by a person."""
    steps, given, error = awaited.__await__(), None, None
    while True:
        try:
            with _protect_rules():
                waits_for = steps.send(given) if error is None else steps.throw(error)
        except StopIteration as done:
            return done.value
        try:
            given, error = (yield waits_for), None
        except BaseException as thrown:
            error = thrown


class _Rules:
    """The original rules of one agent or flow, as copies: the code can also change a rule or a budget in place."""

    def __init__(self, one: Any) -> None:
        self._one = one
        self.name = repr(one.name)
        values = {rule: getattr(one, rule) for rule in _RULES if hasattr(one, rule)}
        self._values = {rule: (value, _copied(value)) for rule, value in values.items()}
        tools = one.tools if isinstance(one.tools, Mapping) else {}
        self._tools = {name: (each, each.fn, each.options) for name, each in tools.items()}

    def restore(self) -> list[str]:
        """Restore the rules, and return the names of those that had changed."""
        changed = []
        for rule, (value, original) in self._values.items():
            if getattr(self._one, rule) is value and value == original:
                continue
            if isinstance(value, list):
                value[:] = original
            setattr(self._one, rule, value if isinstance(value, list) else original)
            changed.append(rule)
        for name, (each, fn, options) in self._tools.items():
            if self._one.tools.get(name) is each and (each.fn, each.options) == (fn, options):
                continue
            self._one.tools[name], each.fn, each.options = each, fn, options
            changed.append(f"tool {name}")
        return changed


def _copied(value: Any) -> Any:
    """A copy of a budget, or of a list of rules; middleware is not copied."""
    if isinstance(value, list):
        return [_copied(one) for one in value]
    return copy(value) if isinstance(value, Budget | Rule | Remembered) else value


class _Stop:
    """Lets Jupyter's stop button, or Ctrl+C, end the code; between cells a kernel ignores both."""

    def __init__(self, file: str) -> None:
        self.task: asyncio.Future[Any] | None = None
        """The task to cancel if the code awaits."""
        self.was_pressed = False
        self._file = file
        self._before: Any = None
        self._over = False
        self._output = current_call.get()
        self._is_run_stopped = False

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
            if self._output is not None:
                self._output.interrupt = self._end_with_run

    def __exit__(self, *_error: object) -> None:
        self._over = True
        if self._output is not None:
            self._output.interrupt = None
        if self._before is None:
            return
        # a cell may have set its own handler
        if signal.getsignal(signal.SIGINT) == self._on_signal:
            signal.signal(signal.SIGINT, self._before)
        is_for_script = hooks.find_host() is None and not self._is_run_stopped
        if self.was_pressed and is_for_script and callable(self._before):
            self._before(signal.SIGINT, None)  # Ctrl+C must also reach the script

    def _end_with_run(self) -> None:
        """End the code, because its run is stopped by another thread."""
        self._is_run_stopped = True
        threading.Thread(target=self._press, name="nbagent-stop", daemon=True).start()

    def _press(self) -> None:
        """Send the signal until it is handled: a sleep that begins in the same moment does not notice it."""
        while not (self.was_pressed or self._over):
            if hasattr(signal, "pthread_kill"):  # ends a sleep too
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:
                _thread.interrupt_main()
            time.sleep(PRESS_AGAIN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._over:
            if callable(self._before) and not self._is_run_stopped:
                self._before(number, frame)
            return
        self.was_pressed = True
        if self.task is None or any(
            one.f_code.co_filename == self._file for one, _ in traceback.walk_stack(frame)
        ):
            raise KeyboardInterrupt
        self.task.cancel()


# --- what the code touches


class _Touched:
    """The names that code uses, assigns, deletes and modifies in place, according to its text."""

    def __init__(self, tree: ast.Module) -> None:
        self.used: dict[str, None] = {}
        self.set: dict[str, None] = {}
        self.modified: dict[str, None] = {}
        self.deleted: dict[str, None] = {}
        self.imported: dict[str, None] = {}
        self._look(tree, is_top=True)

    def _look(self, node: ast.AST, *, is_top: bool) -> None:
        bound: list[str] = []
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                self.used[name] = None
            case ast.Name(id=name, ctx=ast.Store()):
                bound = [name]
            case ast.Name(id=name) if is_top:
                self.deleted[name] = None
            case (
                ast.Attribute(ctx=ast.Store() | ast.Del())
                | ast.Subscript(ctx=ast.Store() | ast.Del())
            ):
                self._change(node)
            case ast.Call(func=function, keywords=named) if any(k.arg == "inplace" for k in named):
                self._change(function)
            case ast.Import(names=names):
                self.imported |= dict.fromkeys(each.name for each in names)
                bound = [each.asname or each.name.partition(".")[0] for each in names]
            case ast.ImportFrom(names=names):
                self.imported[node.module or "."] = None
                bound = [each.asname or each.name for each in names]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                bound = [node.name]
            case _:
                pass
        if is_top:
            self.set |= dict.fromkeys(bound)
        for inner in ast.iter_child_nodes(node):
            self._look(inner, is_top=is_top and not isinstance(node, _SCOPES))

    def _change(self, node: ast.AST) -> None:
        """Record the variable whose attribute or item is changed."""
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
            node = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Name):
            self.modified[node.id] = None


class _Before:
    """The variables before the code ran, to find those that it created or changed."""

    def __init__(self, tree: ast.Module) -> None:
        self._found = _Touched(tree)
        self._names = _shown_names()
        used = (*self._found.used, *self._found.modified)
        self._sizes = {name: _kind(self._names[name]) for name in used if name in self._names}

    def changes(self) -> str:
        """The changes as text; empty if there are none."""
        now = _shown_names()
        kept = [name for name in now if name in self._names and now[name] is self._names[name]]
        modified = [
            name
            for name in kept
            if name in self._found.modified
            or self._sizes.get(name, "") not in ("", _kind(now[name]))
        ]
        lines = {
            "Created": [_named(name, now[name]) for name in now if name not in self._names],
            "Reassigned": [_named(n, now[n]) for n in now if n in self._names and n not in kept],
            "Modified in place": [_named(name, now[name]) for name in modified],
            "Deleted": [name for name in self._names if name not in now],
        }
        return " ".join(f"{heading}: {some(names)}." for heading, names in lines.items() if names)


def _shown_names() -> dict[str, Any]:
    return {name: value for name, value in list(_names().items()) if not name.startswith("_")}


def _named(name: str, value: Any) -> str:
    return f"{name} ({_kind(value)})"


def _kind(value: Any) -> str:
    """The type of a value, and its size."""
    kind = type(value).__name__
    with contextlib.suppress(Exception):  # foreign attributes may do anything
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            return f"{kind}, {' by '.join(f'{size:,}' for size in shape)}"
        if isinstance(value, list | tuple | dict | set):
            return f"{kind} of {len(value):,}"
    return kind
