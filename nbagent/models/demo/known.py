"""The tools of the quickstart, for which the demo model has good inputs.

A tool is recognized by its name. An input is made from the prompt, and used only if it fits the
schema of the actual tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .talk import CallDone


@dataclass(frozen=True, slots=True)
class Known:
    """A tool for which the demo model has its own inputs and texts."""

    wanted: re.Pattern[str]
    """A pattern of prompts that ask for the tool."""
    intro: str
    """The model's text before the call."""
    input: Callable[[str], dict[str, Any]]
    """The function that makes the input from a prompt."""
    closing: Callable[[CallDone], str]
    """The function that makes the final answer from the result."""
    first: str = ""
    """The name of a tool to call first, if the agent has that tool."""


TOPICS = (
    (
        "bbq|barbecue|grill",
        "What should be on the grill?",
        ("Beef burgers", "Halloumi and corn", "A bit of both"),
    ),
    ("dinner|lunch|meal|cook", "What are you in the mood for?", ("Italian", "Thai", "Mexican")),
    (
        "trip|travel|holiday|weekend|vacation",
        "Where should it go?",
        ("To the sea", "To the mountains", "To a city"),
    ),
    ("", "What matters most?", ("Keep it cheap", "Keep it quick", "Make it special")),
)
"""Kinds of plans: the words in a prompt, and a question with choices for the person."""


def _question(prompt: str) -> dict[str, Any]:
    question, choices = next(
        (question, choices)
        for words, question, choices in TOPICS
        if not words or re.search(rf"\b(?:{words})", prompt, re.IGNORECASE)
    )
    return {"question": question, "choices": list(choices)}


def _planned(done: CallDone) -> str:
    if done.refused:
        return (
            "That's fine, I won't ask. Here is a plan that works without an answer:\n\n"
            "1. Pick a date and tell everybody.\n2. Keep it simple.\n3. Have a rain date.\n"
        )
    choice = done.text.strip().strip('"') or "your choice"
    return (
        f"**{choice}** it is. Here is the plan:\n\n"
        "| when | what |\n|---|---|\n"
        "| a week before | invite everybody, ask about allergies |\n"
        f"| the day before | shop for: {choice} |\n"
        "| on the day | start half an hour early |\n\n"
        "For 8 guests at about 300 g each that is $8 \\times 0.3\\,\\text{kg} = 2.4\\,\\text{kg}$ "
        "of food. Have fun!"
    )


def _transfer(prompt: str) -> dict[str, Any]:
    amount = re.search(r"[$€£]\s*(\d[\d,]{,15}(?:\.\d+)?)|\b(\d[\d,]{,15}(?:\.\d+)?)\b", prompt)
    account = re.search(r"\baccount\s+#?(\w+)|\bto\s+#?(\w*\d\w*)|\bto\s+([A-Z]\w+)", prompt)
    number = next(filter(None, amount.groups())).replace(",", "") if amount else "50"
    return {
        "to_account": next(filter(None, account.groups())) if account else "ABC123",
        "amount": float(number),
    }


def _transferred(done: CallDone) -> str:
    account, amount = done.input.get("to_account"), done.input.get("amount")
    money = f"**${amount:,.2f}**" if isinstance(amount, int | float) else "the money"
    if done.refused:
        return f"I did not transfer {money} to account **{account}**: you said no{done.reason}. Nothing moved."
    changed = ", as you changed it" if done.edited else ""
    return (
        f"Done{changed}: {money} went to account **{account}**. The bank says: {quoted(done.text)}"
    )


def _mail(prompt: str) -> dict[str, Any]:
    address = re.search(r"[\w.+-]+@[\w-]+\.[\w.]+\w", prompt)
    to = re.search(
        r"(?i:\b(?:to|invite|tell|remind|e?mail|write))\s+(?:to\s+)?([A-Z][a-z]+)", prompt
    )
    name = to[1] if to else "Ada"
    rest = prompt[to.end() :] if to else prompt
    rest = re.sub(r"^\W*(?:that|about|saying)?\s*", "", rest).rstrip(" .!?")
    invited = bool(re.search(r"\binvite\b", prompt, re.IGNORECASE))
    if invited:
        rest = re.sub(r"^to\s+", "", rest) or "our next meeting"
        subject, line = f"Invitation to {rest}", f"You are invited to {rest}. I hope you can come."
    else:
        rest = rest or "a short note"
        subject = rest[0].upper() + rest[1:]
        line = f"{subject}. I wanted you to know as soon as possible."
    return {
        "to": address[0] if address else f"{name.lower()}@example.com",
        "subject": subject[:120],
        "body": f"Hi {name},\n\n{line}\n\nBest wishes\n",
    }


def _mailed(done: CallDone) -> str:
    to, subject = done.input.get("to"), done.input.get("subject")
    if done.refused:
        return f"I did not send the mail to {to}: you said no{done.reason}."
    changed = ", with your changes" if done.edited else ""
    return f"The mail *{subject}* is on its way to {to}{changed}."


def _balance(prompt: str) -> dict[str, Any]:
    account = re.search(r"\b(?:of|from|in)\s+(?:account\s+)?#?(\w*\d\w*)", prompt)
    return {"account": account[1] if account else "checking"}


def _balanced(done: CallDone) -> str:
    if done.refused:
        return "I did not look at the balance: you said no."
    return f"The balance of **{done.input.get('account')}** is {quoted(done.text)}."


KNOWN: Mapping[str, Known] = {
    "ask_question": Known(
        re.compile(r"\b(plan|organi[sz]e|prepare|choose|decide|ask|help|bbq)", re.IGNORECASE),
        "Happy to! One question first, so that the plan fits.",
        _question,
        _planned,
    ),
    "get_balance": Known(
        re.compile(r"\b(balance|how much money)", re.IGNORECASE),
        "Let me look at the balance.",
        _balance,
        _balanced,
    ),
    "transfer_money": Known(
        re.compile(r"\b(transfer|pay|wire)\b.*\d|\bsend\b.*[$€£]", re.IGNORECASE | re.DOTALL),
        "I'll prepare the transfer.",
        _transfer,
        _transferred,
        first="get_balance",
    ),
    "send_email": Known(
        re.compile(r"\b(e-?mail|mail|write|invite|tell|remind)\b", re.IGNORECASE),
        "Here is a draft. Have a look before it goes out.",
        _mail,
        _mailed,
    ),
}


def quoted(text: str) -> str:
    """A result in Markdown: a short one inline, a long one as a block of at most 600 characters."""
    text = text.strip()
    if len(text) <= 100 and "\n" not in text:
        return f"`{text.replace('`', chr(39))}`" if text else "(nothing)"
    cut = text if len(text) <= 600 else f"{text[:600]} …"
    return f"\n\n```text\n{cut.replace('```', chr(39) * 3)}\n```\n"
