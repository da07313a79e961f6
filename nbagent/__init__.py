"""LLM agent runs as live notebook widgets, with inline forms where a tool asks."""

import sys as _sys
from importlib import import_module as _import_module
from typing import Any as _Any

from .core.agent import Agent
from .core.base.errors import (
    BudgetExceeded,
    Cancelled,
    Conflict,
    Expired,
    FormCancelled,
    HumanInputRequired,
    InvalidAnswer,
    MessagesError,
    Misuse,
    ModelConfigError,
    ModelError,
    NbagentError,
    NotPending,
    Rejected,
    RunError,
    RunNotFinished,
    StoreError,
    ToolError,
    ToolFailed,
    TurnLimit,
    UnansweredInterrupts,
    UsageError,
)
from .core.base.errors import suggest as _suggest
from .core.base.interrupts import Interrupt, PendingInterrupt, Reject, Respond, Restart, Resumed
from .core.base.metadata import Ask, Choose, Confirm, Edit, Option
from .core.hooks import hooks as _hooks
from .core.journal.memory import MemoryStore
from .core.opening import answer_external, open_run
from .core.run.generate import Response, tool_rejection, tool_response, tool_restart
from .core.run.result import Result
from .core.run.run import Run
from .core.tools.context import ToolContext
from .core.tools.define import interrupt_tool, tool
from .core.tools.middleware import Retry, Timeout, ToolCall, ToolErrorsToText
from .core.tools.policy import allow, deny, review
from .core.tools.spec import Budget
from .core.tools.tool import Tool, ToolResult

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Ask",
    "Budget",
    "BudgetExceeded",
    "Cancelled",
    "Choose",
    "Confirm",
    "Conflict",
    "Edit",
    "Expired",
    "FormCancelled",
    "FormHint",
    "HumanInputRequired",
    "Interrupt",
    "InvalidAnswer",
    "MemoryStore",
    "MessagesError",
    "Misuse",
    "ModelConfigError",
    "ModelError",
    "NbagentError",
    "NotPending",
    "OpenAIModel",
    "Option",
    "PendingInterrupt",
    "Reject",
    "Rejected",
    "Respond",
    "Response",
    "Restart",
    "Result",
    "Resumed",
    "Retry",
    "Run",
    "RunError",
    "RunNotFinished",
    "SQLiteStore",
    "ScriptedModel",
    "StoreError",
    "Timeout",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolErrorsToText",
    "ToolFailed",
    "ToolResult",
    "TurnLimit",
    "UnansweredInterrupts",
    "UsageError",
    "__version__",
    "allow",
    "allow_nested",
    "answer_external",
    "deny",
    "form",
    "interrupt_tool",
    "open_run",
    "review",
    "set_locale",
    "tool",
    "tool_rejection",
    "tool_response",
    "tool_restart",
]

_LATE = {
    "FormHint": "nbagent.forms.hints",
    "OpenAIModel": "nbagent.models.openai.model",
    "SQLiteStore": "nbagent.stores.sqlite",
    "ScriptedModel": "nbagent.models.scripted",
    "allow_nested": "nbagent.notebook.nested",
    "form": "nbagent.notebook.forms",
    "set_locale": "nbagent.notebook.locale",
}


def __getattr__(name: str) -> _Any:
    """Load what a plain ``import nbagent`` should not pay for."""
    if name not in _LATE:
        hint = "" if name.startswith("_") else _suggest(name, __all__)
        raise AttributeError(f"module 'nbagent' has no attribute {name!r}{hint}")
    value = getattr(_import_module(_LATE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def _notebook_host() -> _Any:
    """The notebook, where this code runs in a kernel."""
    if "ipykernel" not in _sys.modules:
        return None
    return _import_module("nbagent.notebook.host").find()


def _named_model(name: str) -> _Any:
    return _import_module("nbagent.models.resolve").resolve(name)


_hooks.find_host = _notebook_host
_hooks.model_named = _named_model


def _schema_errors(schema: _Any, value: _Any) -> list[dict[str, _Any]]:
    """What a JSON Schema has against an answer."""
    found: _Any = _import_module("nbagent.forms.answer.json_schema").validator_for(schema)
    return [{"loc": tuple(e.absolute_path), "msg": e.message} for e in found.iter_errors(value)]


_hooks.schema_errors = _schema_errors
