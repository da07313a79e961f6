"""The demo model's responses: a pure function of the conversation and the tools.

With tools, the demo model makes a plan from the prompt, with one step per response, and ends
with the results. It calls only existing tools, each with a valid input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.core.base.messages import dumps
from nbagent.core.base.model import ToolSpec

from .known import KNOWN, quoted
from .sample import NoSample, fits, sample
from .talk import CallDone, Conversation

MAX_TOOLS = 12
"""The maximum number of tools to call if the prompt names none."""
AT_ONCE = 3
"""The maximum number of calls in one response."""
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a about an and are call can do find for from get give have i in is it list make me my new of "
        "on or please run set show that the this to tool tools use what with you your",
    )
)


@dataclass(frozen=True, slots=True)
class Reply:
    """One response: a text, then tool calls as pairs of a name and an input."""

    text: str
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()


def reply(talk: Conversation) -> Reply:
    """The response to a conversation."""
    steps, skipped = _plan(talk)
    if talk.step < len(steps):
        return steps[talk.step]
    if talk.output_schema is not None:
        try:
            return Reply(dumps(sample(talk.output_schema)))
        except NoSample:
            return Reply("{}")
    if not talk.done:
        return Reply(_chat(talk, skipped))
    known = [done for done in talk.done if done.name in KNOWN]
    if len(known) == len(talk.done) and not any(done.failed for done in known):
        return Reply("\n\n".join(KNOWN[done.name].closing(done) for done in known))
    lines = [f"- **{done.name}** {_outcome(done)}" for done in talk.done]
    head = "Here is what came back:" if len(lines) > 1 else "This is what came back:"
    return Reply("\n".join([head, "", *lines, *_left_out(talk, skipped)]))


def _plan(talk: Conversation) -> tuple[list[Reply], list[str]]:
    """The steps for the prompt, and the names of tools for which no valid input was found."""
    steps: list[Reply] = []
    others: list[tuple[str, Mapping[str, Any]]] = []
    skipped: list[str] = []
    for tool in _chosen(talk):
        try:
            value = _input(tool, talk.prompt)
        except NoSample:
            skipped.append(tool.name)
            continue
        if tool.name in KNOWN:
            steps.append(Reply(KNOWN[tool.name].intro, [(tool.name, value)]))
        else:
            others.append((tool.name, value))
    for start in range(0, len(others), AT_ONCE):
        calls = others[start : start + AT_ONCE]
        steps.append(Reply(f"I'll call {_and([name for name, _ in calls])}.", calls))
    return steps, skipped


def _chosen(talk: Conversation) -> list[ToolSpec]:
    tools = talk.tools
    names = [name for name in tools if name in KNOWN and KNOWN[name].wanted.search(talk.prompt)]
    for name in names:
        first = KNOWN[name].first
        if first in tools:
            names = [first, *(other for other in names if other != first)]
    if not names:
        names = _named(talk)
    if not names:
        called = {done.name for done in talk.earlier}
        names = [name for name in tools if name not in called][:MAX_TOOLS]
    return [tools[name] for name in names]


def _named(talk: Conversation) -> list[str]:
    """The tools whose names share a word with the prompt, else tools whose descriptions share two."""
    words = _words(talk.prompt)
    by_name = [name for name in talk.tools if words & _words(name)]
    return by_name or [
        name for name, tool in talk.tools.items() if len(words & _words(tool.description)) >= 2
    ]


def _words(text: str) -> set[str]:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ").lower()
    found = {word for word in re.findall(r"[^\W\d_]{2,}", split) if word not in _COMMON}
    return {re.sub(r"(?<=\w{3})(?:ing|ed|es|s)$", "", word) for word in found}


def _input(tool: ToolSpec, prompt: str) -> Mapping[str, Any]:
    if tool.name in KNOWN:
        value = KNOWN[tool.name].input(prompt)
        if fits(tool.input_schema, value):
            return value
    found = sample({"type": "object", **tool.input_schema})
    if not isinstance(found, dict):
        raise NoSample(f"The input of {tool.name!r} is not an object")
    for key in found:  # values from the prompt replace generated values
        part = tool.input_schema.get("properties", {}).get(key, {})
        for guess in _guesses(key, part if isinstance(part, dict) else {}, prompt):
            if fits(tool.input_schema, {**found, key: guess}):
                found = {**found, key: guess}
                break
    return found


def _guesses(key: str, part: Mapping[str, Any], prompt: str) -> list[Any]:
    guesses: list[Any] = [
        option
        for option in part.get("enum") or ()
        if isinstance(option, str) and re.search(rf"\b{re.escape(option)}\b", prompt, re.IGNORECASE)
    ]
    if part.get("type") in {"number", "integer"}:
        numbers = re.findall(r"(?<![\w.])\d{1,15}(?:\.\d+)?(?![\w.]*\w)", prompt)
        guesses += [float(n) if "." in n else int(n) for n in numbers]
    if part.get("type") == "string" and "enum" not in part:
        guesses += re.findall(r'["“]([^"”]+)["”]', prompt)
        if re.search(r"account|id$|code|number", key, re.IGNORECASE):
            guesses += re.findall(r"\b[A-Z]+\d\w*\b", prompt)
        if "mail" in key or key == "to":
            guesses += re.findall(r"[\w.+-]+@[\w-]+\.[\w.]+\w", prompt)
    return guesses


def _outcome(done: CallDone) -> str:
    if done.refused:
        return f"was rejected, so it did not run{done.reason}."
    how = f"ran with your changes, `{dumps(dict(done.input))}`, and " if done.edited else ""
    verb = "failed:" if done.failed else "gave"
    return f"{how}{verb} {quoted(done.text)}".rstrip().replace("\n", "\n  ")


def _left_out(talk: Conversation, skipped: Sequence[str]) -> list[str]:
    notes = []
    if skipped:
        notes += ["", f"I could not create an input that fits {_and(skipped)}."]
    called = {done.name for done in (*talk.done, *talk.earlier)}
    rest = [name for name in talk.tools if name not in called and name not in skipped]
    if rest:
        notes += ["", f"There is more to try. Ask me for {_and(rest[:3])}."]
    return notes


def _chat(talk: Conversation, skipped: Sequence[str]) -> str:
    prompt = " ".join(talk.prompt.split())[:200]
    if talk.tools and not skipped:
        return (
            f"You said: “{prompt}”. I am only the demo model, and I have called all my tools: {_and(talk.tools)}. "
            "Name one, and I will call it again."
        )
    if skipped:
        return f"I am the demo model, and I could not create an input that fits {_and(skipped)}."
    if talk.prompts > 1:
        return (
            f"You said: “{prompt}”. This is message {talk.prompts} of our chat, and I have the earlier ones too. But as "
            "the **demo model** I know only a few lines. With a tool I can do more, and a real model will give you a "
            "real answer."
        )
    return _HELLO.format(prompt=prompt)


def _and(tools: Iterable[str]) -> str:
    names = [f"`{name}`" for name in tools]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


_HELLO = """Hello! You said: “{prompt}”.

I am the **demo model** of nbagent. I run right here in the kernel and need no key, so I know only a \
few lines. But they stream like a real model's, and can contain

- lists and **emphasis**,
- code,
- formulas, inline like $e^{{i\\pi}} + 1 = 0$ or on their own line.

```python
def mean(values: list[float]) -> float:
    return sum(values) / len(values)
```

$$\\bar{{x}} = \\frac{{1}}{{n}} \\sum_{{i=1}}^{{n}} x_i$$

Give me a tool, any function of yours, and I will call it. For real answers, set `OPENAI_API_KEY` and \
name a real model.
"""
