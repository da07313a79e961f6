"""The usage of a response, in the format of each server."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.core.base.model import Usage
from nbagent.models.openai.stream import usage_of

SAID: dict[str, tuple[dict[str, Any], Usage]] = {
    "Chat Completions": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 50,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 30},
            "completion_tokens_details": {"reasoning_tokens": 20},
        },
        Usage(100, 50, None, cached=40, reasoning=20, written=30),
    ),
    "Responses": (
        {
            "input_tokens": 100,
            "output_tokens": 50,
            "total_tokens": 150,
            "input_tokens_details": {"cached_tokens": 40},
            "output_tokens_details": {"reasoning_tokens": 20},
        },
        Usage(100, 50, None, cached=40, reasoning=20),
    ),
    "DeepSeek": (
        {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4},
        Usage(9, 1, None, cached=4),
    ),
    "a cache in Anthropic's words": (
        {"prompt_tokens": 9, "completion_tokens": 1, "cache_read_input_tokens": 4},
        Usage(9, 1, None, cached=4),
    ),
    "Gemini and Grok, whose output leaves out what is thought": (
        {
            "prompt_tokens": 20,
            "completion_tokens": 198,
            "total_tokens": 623,
            "completion_tokens_details": {"reasoning_tokens": 405},
        },
        Usage(20, 603, None, reasoning=405),
    ),
    "OpenRouter": ({"prompt_tokens": 9, "completion_tokens": 1, "cost": 0.5}, Usage(9, 1, 0.5)),
    "OpenRouter with a key of one's own": (
        {
            "prompt_tokens": 9,
            "completion_tokens": 1,
            "cost": 0.5,
            "is_byok": True,
            "cost_details": {"upstream_inference_cost": 9.5},
        },
        Usage(9, 1, 10.0),
    ),
    "OpenRouter with a key of one's own, whose bill it does not know": (
        {"prompt_tokens": 9, "completion_tokens": 1, "cost": 0.5, "is_byok": True},
        Usage(9, 1, None),
    ),
    "xAI": (
        {"prompt_tokens": 9, "completion_tokens": 1, "cost_in_usd_ticks": 37_756_000},
        Usage(9, 1, 0.0037756),
    ),
    "Perplexity": (
        {"prompt_tokens": 9, "completion_tokens": 1, "cost": {"total_cost": 0.25}},
        Usage(9, 1, 0.25),
    ),
    "nothing": ({}, Usage()),
    "nulls": (
        {"prompt_tokens": None, "completion_tokens": None, "prompt_tokens_details": None},
        Usage(),
    ),
}


@pytest.mark.parametrize("server", SAID)
def test_usage_is_parsed_in_the_format_of_each_server(server: str) -> None:
    """Usage has tokens, cached and reasoning tokens, and the cost if the server reports it."""
    told, meant = SAID[server]
    assert usage_of(told) == meant


def test_a_sum_of_known_and_unknown_usage_is_not_reported_as_complete() -> None:
    """The known part is kept separately; empty usage adds nothing."""
    known, unknown = Usage(10, 1, 0.5), Usage(10, 1)
    both = known + unknown
    assert (both.cost, both.known_cost, both.input_tokens) == (None, 0.5, 20)
    assert (both + known).known_cost == 1.0
    assert (known + known).cost == (known + known).known_cost == 1.0
    assert Usage() + known == known + Usage() == known
    assert (known + Usage(partial=True)).partial
    assert (known + Usage(partial=True)).cost is None
