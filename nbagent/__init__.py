"""LLM agent runs as live notebook widgets, with inline forms for questions."""

import os as _os
import sys as _sys
import typing as _typing
from importlib import import_module as _import_module
from typing import Any as _Any

from .core.base import errors
from .core.base.errors import NbagentError
from .core.base.errors import suggest as _suggest
from .core.hooks import hooks as _hooks

if _typing.TYPE_CHECKING:  # noqa: TID251 - what types each name has that is loaded when it is asked for
    from .batch.batch import map, open_batch  # noqa: A004 - the word that people look for
    from .core.agent import Agent
    from .core.base.errors import Conflict, HumanInputRequired, NbagentError, Rejected, TurnLimit
    from .core.base.interrupts import Interrupt, PendingInterrupt, Reject, Respond, Restart
    from .core.base.metadata import Ask, Choose, Confirm, Edit, Option
    from .core.base.model import Model
    from .core.chat import Chat
    from .core.flow import Flow, flow
    from .core.journal.default import use_store
    from .core.journal.memory import MemoryStore
    from .core.journal.store import Store
    from .core.journal.verification import verify_run
    from .core.run.generate import Response, tool_rejection, tool_response, tool_restart
    from .core.run.run import Run
    from .core.stored.decisions import decisions
    from .core.stored.deletion import delete_run, prune
    from .core.stored.document import export_run, import_run
    from .core.stored.inbox import below
    from .core.stored.listing import runs
    from .core.stored.opening import answer_external, open_run
    from .core.tools.attachments import File
    from .core.tools.context import Row, ToolContext
    from .core.tools.define import interrupt_tool, tool
    from .core.tools.hosted import hosted
    from .core.tools.instructions import RunView
    from .core.tools.kept_history import keep
    from .core.tools.middleware import Retry, Timeout, ToolCall, ToolErrorsToText
    from .core.tools.plan import plan
    from .core.tools.policy import CallView, allow, deny, review
    from .core.tools.spec import Budget
    from .core.tools.tool import ToolResult
    from .data.tools import notebook_tools
    from .forms.hints import FormHint
    from .listeners.notify import notify
    from .listeners.trace import trace
    from .mcp_servers.address import McpSignIn
    from .mcp_servers.server import mcp
    from .models.fallback import Fallback
    from .models.limits import RateLimit
    from .models.litellm import LiteLLMModel
    from .models.openai.history import messages_from_openai, messages_to_openai
    from .models.openai.model import OpenAIModel
    from .models.prices import set_prices
    from .models.recorded.model import RecordedModel
    from .models.scripted import ScriptedModel
    from .notebook.forms import form
    from .notebook.inbox_list import inbox
    from .notebook.locale import set_locale
    from .notebook.nested import allow_nested
    from .others.watch import watch
    from .stores.sql import SQLStore
    from .stores.sqlite import SQLiteStore

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Ask",
    "Budget",
    "CallView",
    "Chat",
    "Choose",
    "Confirm",
    "Conflict",
    "Edit",
    "Fallback",
    "File",
    "Flow",
    "FormHint",
    "HumanInputRequired",
    "Interrupt",
    "LiteLLMModel",
    "McpSignIn",
    "MemoryStore",
    "Model",
    "NbagentError",
    "OpenAIModel",
    "Option",
    "PendingInterrupt",
    "RateLimit",
    "RecordedModel",
    "Reject",
    "Rejected",
    "Respond",
    "Response",
    "Restart",
    "Retry",
    "Row",
    "Run",
    "RunView",
    "SQLStore",
    "SQLiteStore",
    "ScriptedModel",
    "Store",
    "Timeout",
    "ToolCall",
    "ToolContext",
    "ToolErrorsToText",
    "ToolResult",
    "TurnLimit",
    "allow",
    "allow_nested",
    "answer_external",
    "below",
    "decisions",
    "delete_run",
    "deny",
    "errors",
    "export_run",
    "flow",
    "form",
    "hosted",
    "import_run",
    "inbox",
    "interrupt_tool",
    "keep",
    "map",
    "mcp",
    "messages_from_openai",
    "messages_to_openai",
    "notebook_tools",
    "notify",
    "open_batch",
    "open_run",
    "plan",
    "prune",
    "review",
    "runs",
    "set_locale",
    "set_prices",
    "tool",
    "tool_rejection",
    "tool_response",
    "tool_restart",
    "trace",
    "use_store",
    "verify_run",
    "watch",
]

_LATE = {
    name: f"nbagent.{place}"
    for place, names in {
        "batch.batch": "map open_batch",
        "core.agent": "Agent",
        "core.base.errors": "Conflict HumanInputRequired Rejected TurnLimit",
        "core.base.interrupts": "Interrupt PendingInterrupt Reject Respond Restart",
        "core.base.metadata": "Ask Choose Confirm Edit Option",
        "core.base.model": "Model",
        "core.chat": "Chat",
        "core.flow": "Flow flow",
        "core.journal.default": "use_store",
        "core.journal.memory": "MemoryStore",
        "core.journal.store": "Store",
        "core.journal.verification": "verify_run",
        "core.run.generate": "Response tool_rejection tool_response tool_restart",
        "core.run.run": "Run",
        "core.stored.decisions": "decisions",
        "core.stored.deletion": "delete_run prune",
        "core.stored.document": "export_run import_run",
        "core.stored.inbox": "below",
        "core.stored.listing": "runs",
        "core.stored.opening": "answer_external open_run",
        "core.tools.attachments": "File",
        "core.tools.context": "Row ToolContext",
        "core.tools.define": "interrupt_tool tool",
        "core.tools.hosted": "hosted",
        "core.tools.instructions": "RunView",
        "core.tools.kept_history": "keep",
        "core.tools.middleware": "Retry Timeout ToolCall ToolErrorsToText",
        "core.tools.plan": "plan",
        "core.tools.policy": "CallView allow deny review",
        "core.tools.spec": "Budget",
        "core.tools.tool": "ToolResult",
        "data.tools": "notebook_tools",
        "forms.hints": "FormHint",
        "listeners.notify": "notify",
        "listeners.trace": "trace",
        "mcp_servers.address": "McpSignIn",
        "mcp_servers.server": "mcp",
        "models.fallback": "Fallback",
        "models.limits": "RateLimit",
        "models.litellm": "LiteLLMModel",
        "models.openai.history": "messages_from_openai messages_to_openai",
        "models.openai.model": "OpenAIModel",
        "models.prices": "set_prices",
        "models.recorded.model": "RecordedModel",
        "models.scripted": "ScriptedModel",
        "notebook.forms": "form",
        "notebook.inbox_list": "inbox",
        "notebook.locale": "set_locale",
        "notebook.nested": "allow_nested",
        "others.watch": "watch",
        "stores.sql": "SQLStore",
        "stores.sqlite": "SQLiteStore",
    }.items()
    for name in names.split()
}
"""The module of each name; it is imported on first use, so that ``import nbagent`` is fast."""


def __getattr__(name: str) -> _Any:
    """Import the name's module and return its value."""
    if name not in _LATE:
        raise AttributeError(f"module 'nbagent' has no attribute {name!r}{_hint(name)}")
    value = getattr(_import_module(_LATE[name]), name)
    globals()[name] = value
    return value


def _hint(name: str) -> str:
    found = vars(errors).get(name)
    if isinstance(found, type) and issubclass(found, NbagentError):
        return f". Use nb.errors.{name}"
    provider = name.removesuffix("Model").lower() if name.endswith("Model") else ""
    if provider == "demo":
        return '. Use nb.Agent("demo")'
    if provider in _import_module("nbagent.models.openai.providers").PROVIDERS:
        return f'. Use nb.Agent("{provider}:<model>")'
    return "" if name.startswith("_") else _suggest(name, __all__)


def load_ipython_extension(shell: _Any) -> None:
    """``%load_ext nbagent``: ``%%agent`` and ``%agent``; for help: ``%agent --help``."""
    _import_module("nbagent.notebook.magics").register(shell)


def _register_placeholder() -> None:
    """Register a placeholder for ``%%agent`` in IPython; its error message explains how to load ``%%agent``."""
    shell = _sys.modules["IPython"].get_ipython() if "IPython" in _sys.modules else None
    if shell is None or "agent" in shell.magics_manager.magics["cell"]:
        return

    def agent(line: str, cell: str | None = None) -> None:  # noqa: ARG001 - as IPython calls magics
        raise _import_module("IPython.core.error").UsageError(
            "%agent and %%agent are not loaded. Run  %load_ext nbagent  in a cell once, then run this cell again."
        )

    shell.register_magic_function(agent, "line_cell", "agent")


def __dir__() -> list[str]:
    return __all__


def _notebook_host() -> _Any:
    """The notebook, if this code runs in a kernel or in marimo."""
    if "ipykernel" in _sys.modules or "pyodide_kernel" in _sys.modules:
        found = _import_module("nbagent.notebook.host").find()
        if found is not None:
            return found
    if "marimo" in _sys.modules:
        return _import_module("nbagent.notebook.marimo_host").find()
    return None


def _makes_form() -> bool:
    """Whether the current schema is for a form."""
    hints = _sys.modules.get("nbagent.forms.hints")
    return hints is not None and bool(hints.making_form.get())


def _is_recorded() -> bool:
    """Whether any model of this process may be recorded or replayed."""
    named = _os.environ.get("NBAGENT_RECORD") or _os.environ.get("NBAGENT_REPLAY")
    return bool(named) or "nbagent.models.recorded.model" in _sys.modules


def _in_place_of(model: _Any) -> _Any:
    if not _is_recorded():
        return model
    return _import_module("nbagent.models.recorded.model").recorded_or_same(model)


def _answer_recording_of(model: _Any) -> _Any:
    if not _is_recorded():
        return None
    return _import_module("nbagent.models.recorded.model").answer_recording_of(model)


def _store_at(place: str) -> _Any:
    """The store at a place: the URL of a database, or the path of a file."""
    if "://" in place:
        return _import_module("nbagent.stores.sql").SQLStore(place)
    return _import_module("nbagent.stores.sqlite").SQLiteStore(place)


def _late(place: str, name: str) -> _Any:
    """The function ``name`` of the module ``place``, which is imported when the function is called."""

    def called(*args: _Any, **options: _Any) -> _Any:
        return getattr(_import_module(f"nbagent.{place}"), name)(*args, **options)

    return called


_register_placeholder()
_hooks.find_host = _notebook_host
_hooks.store_at = _store_at
_hooks.model_named = _late("models.resolve", "resolve")
_hooks.recorded_or_same = _in_place_of
_hooks.answer_recording_of = _answer_recording_of
_hooks.browser_button = _late("notebook.browser_notes", "show_button")
_hooks.inbox_of = _late("notebook.inbox_list", "Inbox")
_hooks.script_ended = _late("cli.script", "finish")
_hooks.asks_in_terminal = _late("cli.script", "wait")
_hooks.awaits_in_terminal = _late("cli.script", "wait_beside")
_hooks.asks_outside_in_terminal = _late("cli.script", "ask_outside")
_hooks.asks_rows_in_terminal = _late("cli.script", "ask_rows")
_hooks.follows_in_terminal = _late("cli.script", "follow")
_hooks.fills_in_terminal = _late("cli.script", "fill")
_hooks.talks_in_terminal = _late("cli.script", "talk")
_hooks.error_lines = _late("notebook.tracebacks", "rendered")
_hooks.exported = _late("notebook.export", "exported")
_hooks.reported = _late("notebook.report", "reported")
_hooks.makes_form = _makes_form
_hooks.schema_errors = _late("forms.answer.json_schema", "errors_of")
_hooks.schema_misfit = _late("forms.answer.json_schema", "misfit")
_hooks.pattern_in = _late("forms.schema.patterns", "matches")
_hooks.unsearched_patterns = _late("forms.schema.patterns", "unsearched")
