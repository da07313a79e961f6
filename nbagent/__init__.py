"""LLM agent runs as live notebook widgets, with inline forms where a tool asks."""

import os as _os
import sys as _sys
from importlib import import_module as _import_module
from typing import Any as _Any

from .core.agent import Agent
from .core.base import errors
from .core.base.errors import Conflict, HumanInputRequired, NbagentError, Rejected, TurnLimit
from .core.base.errors import suggest as _suggest
from .core.base.interrupts import Interrupt, PendingInterrupt, Reject, Respond, Restart
from .core.base.metadata import Ask, Choose, Confirm, Edit, Option
from .core.base.model import Model
from .core.chat import Chat
from .core.flow import Flow, flow
from .core.hooks import hooks as _hooks
from .core.journal.default import use_store
from .core.journal.journal import Store
from .core.journal.memory import MemoryStore
from .core.run.generate import Response, tool_rejection, tool_response, tool_restart
from .core.run.run import Run
from .core.stored.opening import answer_external, open_run
from .core.tools.context import ToolContext
from .core.tools.define import interrupt_tool, tool
from .core.tools.files import File
from .core.tools.instructions import RunView
from .core.tools.middleware import Retry, Timeout, ToolCall, ToolErrorsToText
from .core.tools.policy import CallView, allow, deny, review
from .core.tools.spec import Budget
from .core.tools.tool import ToolResult

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
    "File",
    "Flow",
    "FormHint",
    "HumanInputRequired",
    "Interrupt",
    "LiteLLMModel",
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
    "mcp",
    "messages_from_openai",
    "messages_to_openai",
    "notebook_tools",
    "open_run",
    "prune",
    "review",
    "runs",
    "set_locale",
    "set_prices",
    "tool",
    "tool_rejection",
    "tool_response",
    "tool_restart",
    "use_store",
    "verify_run",
]

_LATE = {
    "FormHint": "nbagent.forms.hints",
    "LiteLLMModel": "nbagent.models.litellm",
    "OpenAIModel": "nbagent.models.openai.model",
    "RateLimit": "nbagent.models.limits",
    "RecordedModel": "nbagent.models.recorded.model",
    "SQLStore": "nbagent.stores.sql",
    "SQLiteStore": "nbagent.stores.sqlite",
    "ScriptedModel": "nbagent.models.scripted",
    "allow_nested": "nbagent.notebook.nested",
    "decisions": "nbagent.core.stored.decisions",
    "delete_run": "nbagent.core.stored.deletion",
    "export_run": "nbagent.core.stored.document",
    "import_run": "nbagent.core.stored.document",
    "prune": "nbagent.core.stored.deletion",
    "verify_run": "nbagent.core.journal.verification",
    "form": "nbagent.notebook.forms",
    "inbox": "nbagent.notebook.inbox",
    "mcp": "nbagent.mcp_servers.server",
    "hosted": "nbagent.core.tools.hosted",
    "messages_from_openai": "nbagent.models.openai.history",
    "messages_to_openai": "nbagent.models.openai.history",
    "notebook_tools": "nbagent.data.tools",
    "runs": "nbagent.core.stored.listing",
    "set_locale": "nbagent.notebook.locale",
    "set_prices": "nbagent.models.prices",
}


def __getattr__(name: str) -> _Any:
    """Load what a plain ``import nbagent`` should not pay for."""
    if name not in _LATE:
        raise AttributeError(f"module 'nbagent' has no attribute {name!r}{_hint(name)}")
    value = getattr(_import_module(_LATE[name]), name)
    globals()[name] = value
    return value


def _hint(name: str) -> str:
    found = vars(errors).get(name)
    if isinstance(found, type) and issubclass(found, NbagentError):
        return f"; it is nb.errors.{name}"
    return "" if name.startswith("_") else _suggest(name, __all__)


def load_ipython_extension(shell: _Any) -> None:
    """``%load_ext nbagent``: ``%%agent`` and ``%agent``; ``%agent --help`` tells how."""
    _import_module("nbagent.notebook.magics").register(shell)


def __dir__() -> list[str]:
    return __all__


def _notebook_host() -> _Any:
    """The notebook, where this code runs in a kernel, or in marimo."""
    if "ipykernel" in _sys.modules:
        found = _import_module("nbagent.notebook.host").find()
        if found is not None:
            return found
    if "marimo" in _sys.modules:
        return _import_module("nbagent.notebook.marimo_host").find()
    return None


def _named_model(name: str) -> _Any:
    return _import_module("nbagent.models.resolve").resolve(name)


def _price_list() -> str:
    return f" (nbagent's prices are of {_import_module('nbagent.models.prices').price_date()})"


def _error_lines(error: BaseException) -> list[str]:
    """An error of ours, as IPython shows it."""
    found: list[str] = _import_module("nbagent.notebook.tracebacks").rendered(error)
    return found


def _exported(shown: _Any, form: str) -> str:
    """A run, or a chat, as one document to send."""
    found: str = _import_module("nbagent.notebook.export").exported(shown, form)
    return found


def _is_recorded() -> bool:
    """Whether any model of this process may be recorded or replayed."""
    named = _os.environ.get("NBAGENT_RECORD") or _os.environ.get("NBAGENT_REPLAY")
    return bool(named) or "nbagent.models.recorded.model" in _sys.modules


def _in_place_of(model: _Any) -> _Any:
    if not _is_recorded():
        return model
    return _import_module("nbagent.models.recorded.model").in_place_of(model)


def _kept_answers(model: _Any) -> _Any:
    if not _is_recorded():
        return None
    return _import_module("nbagent.models.recorded.model").kept_answers(model)


def _store_at(place: str) -> _Any:
    """A database by its URL, a file by its path."""
    if "://" in place:
        return _import_module("nbagent.stores.sql").SQLStore(place)
    return _import_module("nbagent.stores.sqlite").SQLiteStore(place)


_hooks.store_at = _store_at
_hooks.in_place_of = _in_place_of
_hooks.kept_answers = _kept_answers
_hooks.find_host = _notebook_host
_hooks.model_named = _named_model
_hooks.price_list = _price_list
_hooks.error_lines = _error_lines
_hooks.exported = _exported


def _schema_errors(schema: _Any, value: _Any, *, formats: bool = False) -> list[dict[str, _Any]]:
    """What a JSON Schema has against an answer."""
    found: list[dict[str, _Any]] = _import_module("nbagent.forms.answer.json_schema").errors_of(
        schema, value, formats=formats
    )
    return found


def _schema_misfit(schema: _Any, *, as_input: bool) -> str:
    """Why a JSON Schema cannot be used."""
    found: str = _import_module("nbagent.forms.answer.json_schema").misfit(
        schema, as_input=as_input
    )
    return found


_hooks.schema_errors = _schema_errors
_hooks.schema_misfit = _schema_misfit
