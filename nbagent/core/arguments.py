"""What an agent is given, checked at the door: a wrong argument is named there, and not met in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from .base.errors import UsageError, suggest
from .tools.hosted import check_hosted
from .tools.middleware import Middleware
from .tools.policy import Rule
from .tools.spec import Budget, RunSpec
from .tools.tool import Tool

T = TypeVar("T")


def checked_text(name: str, value: Any, *, optional: bool = False) -> Any:
    """A text, or None where that is allowed.

    Raises:
        UsageError: it is something else.
    """
    if (value is None and optional) or isinstance(value, str):
        return value
    raise UsageError(f"{name} is a text{' or None' if optional else ''}, not {value!r:.80}")


def checked_turns(value: Any, name: str = "max_turns", *, least: int = 1) -> int:
    """How many turns, or calls or questions of one, are allowed.

    Raises:
        UsageError: it is no whole number from ``least`` on.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise UsageError(f"{name} is a whole number and must be at least {least}, not {value!r:.80}")


def checked_budget(value: Any) -> Budget:
    """A budget, unlimited where none is given.

    Raises:
        UsageError: it is something else.
    """
    if value is None or isinstance(value, Budget):
        return value or Budget()
    raise UsageError(
        f"budget is nb.Budget(tokens=…, cost=…, seconds=…) with what is limited, not {value!r:.80}"
    )


def checked_store(value: Any) -> Any:
    """A store, or None.

    Raises:
        UsageError: it is something else, such as a path.
    """
    is_store = not isinstance(value, type) and hasattr(value, "append") and hasattr(value, "read")
    if value is None or is_store:
        return value
    hint = ""
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        hint = f": for a file, give nb.SQLiteStore({str(value)!r})"
    elif isinstance(value, type):
        hint = f": {value.__name__} is a class, give an instance of it"
    raise UsageError(
        f"store is a store such as nb.MemoryStore() or nb.SQLiteStore(path), not {value!r:.80}{hint}"
    )


def checked_list(name: str, value: Any, example: str) -> list[Any]:
    """The items of a list, or of another iterable that is no text.

    Raises:
        UsageError: it is something else; ``example`` says what would be right.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise UsageError(f"{name} is a list, such as {example}, not {value!r:.80}")
    return list(value)


def checked_rules(policy: Any) -> list[Rule]:
    """The rules of a policy, which may be a single one.

    Raises:
        UsageError: something in it is no rule.
    """
    example = "[nb.review('transfer_*'), nb.allow('*')]"
    rules = [policy] if isinstance(policy, Rule) else checked_list("policy", policy, example)
    for rule in rules:
        if not isinstance(rule, Rule):
            raise UsageError(
                f"a rule of policy is made by nb.allow, nb.review or nb.deny; this is {rule!r:.80}"
            )
    return rules


def checked_middleware(middleware: Any) -> list[Middleware]:
    """What surrounds tool calls.

    Raises:
        UsageError: something in it is no middleware.
    """
    found = checked_list("middleware", middleware, "[nb.Retry(times=3)]")
    for one in found:
        if isinstance(one, type):
            raise UsageError(
                f"a middleware is an instance, and {one.__name__} is a class: give {one.__name__}(…)"
            )
        if not callable(one):
            raise UsageError(f"a middleware is an async callable (call, next), not {one!r:.80}")
    return found


def check_rules(spec: RunSpec, registered: Mapping[str, Tool[..., Any]]) -> None:
    """Refuse rules that can never match, since they name a tool that nobody has.

    Args:
        spec: what the run needs to know.
        registered: the agent's own tools, which a rule may name too.

    Raises:
        UsageError: naming the rule, and what it may have meant.
    """
    _check_rules(spec, registered, set())
    check_hosted(spec.model, spec.hosted, spec.policy)


def _names_inside(tools: Mapping[str, Tool[..., Any]], seen: tuple[int, ...] = ()) -> set[str]:
    """The names of the tools of inner agents, and their paths, which rules that deny may name too."""
    names: set[str] = set()
    for name, tool in tools.items():
        inner = tool.options.inner
        if inner is not None and id(inner.tools) not in seen:
            own = {*inner.tools, *(one.name for one in inner.spec().hosted)}
            within = {*own, *_names_inside(inner.tools, (*seen, id(inner.tools)))}
            names |= within | {f"{name}/{one}" for one in within}
    return names


def _check_rules(spec: RunSpec, registered: Mapping[str, Tool[..., Any]], seen: set[int]) -> None:
    names = {*spec.tools, *registered, *(one.name for one in spec.hosted)}
    inner = {name: tool.options.inner for name, tool in spec.tools.items() if tool.options.inner}
    for n, rule in enumerate(spec.policy, 1):
        reaches = "deny" in (rule.verdict, *(r.verdict for r in spec.policy[n:]))
        inside = _names_inside(spec.tools) if reaches and rule.verdict != "review" else set()
        known = names | inside
        body = rule.pattern.partition("/")[0]
        if rule.verdict == "deny" and body != rule.pattern and body in names - {*inner}:
            continue  # in what a tool's body starts, which is known once it runs
        if rule.pattern not in known and not set(rule.pattern) & set("*?["):
            told = _unknown(spec.agent, rule, names, inner)
            way = "; name in nb.flow(tools=[…]) what the flow calls" if spec.model is None else ""
            raise UsageError(f"{told}{way}")
    for one in inner.values():
        if id(one.tools) not in seen:
            seen.add(id(one.tools))
            _check_rules(one.spec(), one.tools, seen)


def _unknown(agent: str, rule: Rule, names: set[str], inner: Mapping[str, Any]) -> str:
    text = f"the rule nb.{rule.verdict}({rule.pattern!r}) names no tool of {agent!r}"
    for name, one in inner.items():
        if rule.pattern in one.tools:
            return f"{text}, but one of the agent {name!r} inside: give the rule to that agent"
    known = ", ".join(sorted(names)) or "it has none"
    return f"{text}{suggest(rule.pattern, names) or f': {known}'}"
