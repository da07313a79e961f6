"""``nb.watch`` with the real packages of LangGraph, the OpenAI Agents SDK and pydantic-ai, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from tests.integration import install_others
from tests.unit.core.schedules.search import THOROUGH

ROOT = Path(__file__).parents[2]
CASES = [
    *(
        f"whole:{kind}"
        for kind in ("pydantic_ai", "openai_agents", "langgraph", "langgraph_per_call")
    ),
    *(
        f"nested:{kind}"
        for kind in ("openai_agents", "langgraph", "langgraph_per_call", "langgraph_tool")
    ),
    *(f"again:{kind}" for kind in ("pydantic_ai", "langgraph", "langgraph_per_call")),
    *(f"one_by_one:{kind}" for kind in ("pydantic_ai", "langgraph", "langgraph_per_call")),
    *(f"stopped:{kind}" for kind in ("pydantic_ai", "openai_agents", "graph")),
    "recorded:openai_agents",
    "retried:langgraph",
    "pauses:langgraph",
    "refused:all",
    *(f"failed:{kind}" for kind in ("pydantic_ai", "openai_agents")),
    "decisions:all",
    "context:all",
    "options:all",
    "breakpoints:langgraph",
    "mcp:openai_agents",
    "shell:openai_agents",
    "toolsets:pydantic_ai",
    "inputs:langgraph",
    "odd:langgraph",
]

pytestmark = pytest.mark.skipif(
    not install_others.is_installed() and not os.environ.get("CI"),
    reason="python tests/integration/install_others.py installs the frameworks",
)


def child(*arguments: str) -> Any:
    """The outcome of the child process, in which the frameworks can be imported."""
    path = os.pathsep.join([str(ROOT), str(install_others.folder())])
    command = [sys.executable, "-W", "ignore", "-m", "tests.integration.others_child", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4_000:]
    return json.loads(ended.stdout.splitlines()[-1])


@cache
def outcomes() -> dict[str, Any]:
    """The outcomes of all cases, of one process."""
    found: dict[str, Any] = child(*CASES)
    return found


@pytest.mark.parametrize(
    "kind", ["pydantic_ai", "openai_agents", "langgraph", "langgraph_per_call"]
)
def test_c755_an_agent_of_another_framework_runs_with_rows_questions_and_answers(kind: str) -> None:
    """Its text and calls are drawn, an edit reaches its tool, a rejected call does not run, and no task is left."""
    found = outcomes()[f"whole:{kind}"]
    paid = (
        "pay 5" if kind == "openai_agents" else "pay 7"
    )  # the SDK's approvals change no arguments
    assert (sorted(found["effects"]), found["tasks"]) == (["look", paid], 0)
    rows = {
        name: (state, result)
        for name, state, _, result in (d for d in found["drawn"] if len(d) > 1)
    }
    calls = [d for d in found["drawn"] if len(d) > 1 and d[0] == "pay"]
    assert rows["look"] == ("done", "3")
    assert [call[1] for call in calls] == ["done", "rejected"]
    assert calls[0][3].endswith(paid.replace("pay", "paid"))
    assert found["drawn"][0] == ["<p>I will pay.</p>"]
    assert "too much" in found["text"]
    assert sum("Results" in d[0] for d in found["drawn"]) == 1  # returned and written, drawn once


@pytest.mark.parametrize(
    "kind", ["openai_agents", "langgraph", "langgraph_per_call", "langgraph_tool"]
)
def test_c840_pauses_inside_a_subgraph_or_an_agent_that_is_a_tool_are_those_of_their_calls(
    kind: str,
) -> None:
    """Each inner call has one row with its result, an edit is checked and reaches it, and a rule names its tool."""
    found = outcomes()[f"nested:{kind}"]
    is_sdk = kind == "openai_agents"
    paid = "pay 5" if is_sdk else "pay 7"
    assert sorted(found["effects"]) == ["look", "look", paid] if is_sdk else ["look", paid]
    calls = [d for d in found["drawn"] if d[0] == "pay"]
    assert [call[1] for call in calls] == ["done", "rejected"]
    if is_sdk:  # which does not report the results of inner calls
        (asked,) = [d for d in found["drawn"] if d[0] == "ask_banker"]
        assert (asked[1], asked[3]) == ("done", "Results: 3, paid 5, too much")
    else:
        assert calls[0][3].endswith("paid 7")
    assert "closed" in found["denied"]
    assert "pay" not in str(found["ran"])


@pytest.mark.parametrize("kind", ["pydantic_ai", "langgraph", "langgraph_per_call"])
def test_c841_an_id_that_a_later_answer_of_the_model_uses_again_is_another_call(kind: str) -> None:
    """It is asked and has its own row; two open calls with one id are refused, and neither runs."""
    *found, twice = outcomes()[f"again:{kind}"]
    last = [("pay", "amount=8", "paid 8"), ("pay", "amount=6", "paid 6"), ("look", 'path="b"', "3")]
    for (effects, rows), (name, brief, result) in zip(found, last, strict=True):
        assert sorted(effects[:2]) == ["look", "pay 5"]  # at once
        assert sorted(row[1] for row in rows) == ["done", "done", "done", "rejected"]
        assert rows[3] == [name, "done", brief, result]
    assert "wrong one" in twice[1] or "duplicate ids" in twice[1]
    assert sorted(twice[0]) == ["look", "pay 5", "pay 6"]


@pytest.mark.parametrize("kind", ["pydantic_ai", "langgraph", "langgraph_per_call"])
def test_c756_answers_are_checked_kept_one_by_one_and_sent_once_when_all_are_there(
    kind: str,
) -> None:
    """Twenty wrong edits change nothing, by their tool's schema; with nobody there it raises at once."""
    found = outcomes()[f"one_by_one:{kind}"]
    assert (found["open"], found["wrong"], found["paid before all answers"]) == (2, 20, [])
    assert found["paid"] == ["pay 5", "pay 6"]
    assert found["asked"] == ["approval", "approval"]


@pytest.mark.parametrize("kind", ["pydantic_ai", "openai_agents", "graph"])
def test_c757_a_stop_cancels_the_other_frameworks_leg_and_leaves_no_task(kind: str) -> None:
    """Their background tasks have ended when the stop has."""
    assert outcomes()[f"stopped:{kind}"] == {"status": "cancelled", "tasks": []}


def test_the_recorded_state_of_a_pause_continues_with_the_answers() -> None:
    """Of an SDK of another day: two calls of its own, and one inside an agent that is a tool."""
    found = outcomes()["recorded:openai_agents"]
    if found is None:
        pytest.skip("openai_agents_native.json is not in ../shared beside this checkout")
    assert found["effects"] == ["ABC 50", "IN 1"]
    assert found["output"] == "Results: 3, sent 50 to ABC, no, Results: sent 1 to IN"
    calls = [(d[0], d[1], d[3]) for d in found["drawn"] if len(d) > 1]
    assert calls[:4] == [
        ("transfer", "done", "sent 50 to ABC"),
        ("transfer", "rejected", None),
        ("transfer", "done", None),  # the SDK does not report inner results
        ("ask_banker", "done", "Results: sent 1 to IN"),
    ]


def test_c758_a_retry_after_their_exception_continues_from_their_checkpoint() -> None:
    """Finished nodes do not run again, and the answered question is not asked again."""
    found = outcomes()["retried:langgraph"]
    assert "RuntimeError: down" in found["told"]
    assert (found["ran"], found["asked"]) == (["first", "ask"], ["ask"])
    assert found["output"] == {"said": ["one", "Ada"]}


def test_c759_a_pause_of_unknown_form_is_a_question_with_its_value_and_never_an_approval() -> None:
    """Text, choices, a type and a breakpoint have forms; each interrupt gets the answer in the form it asked for."""
    found = outcomes()["pauses:langgraph"]
    assert {kind for kind, _ in found["heard"]} == {"ask"}
    assert found["heard"][3][1] == {"pause": {"action": "pay", "approve": True}}
    assert found["got"] == ["Ada", "b", "nights=2", "{'yes': True}", "Bob", "Cy"]
    assert found["output"]["said"][-1] == "last"


def test_c759_a_breakpoint_is_asked_although_its_leg_is_repeated() -> None:
    """The place where a killed leg may have stopped is asked about, also in a subgraph; no node runs before."""
    for told, output in outcomes()["breakpoints:langgraph"]:
        assert [len(set(each)) for each in told] == [1] * (len(told) - 1) + [0]
        assert told[-2] == ["The graph stopped before c. Continue?"] * 2
        assert output == {"said": ["a", "b", "c"]}


@pytest.mark.parametrize("kind", ["pydantic_ai", "openai_agents"])
def test_c691_a_retry_repeats_no_ended_call_of_a_failed_agent_unless_a_person_says_so(
    kind: str,
) -> None:
    """After a failed model it continues with the results; if a call was cut off, a person is asked before the others run again."""
    continued, *asked = outcomes()[f"failed:{kind}"]
    once = ["look", "pay 5", "pay 6"]
    assert (continued["effects"], continued["questions"]) == (once, [])
    assert "model is down" in continued["told"][0]
    assert continued["told"][1] == "Results: 3, paid 5, paid 6"
    if kind == "openai_agents":
        return  # which tells the model of a tool's error
    repeated, refused = asked
    # the other call may have run, or have been cut off before
    assert [each for each in repeated["effects"] if each != "pay 5"] == ["look", "pay 6"]
    assert refused["effects"].count("pay 5") <= 1
    assert "pay 6" not in refused["effects"]
    for each in asked:
        (question,) = each["questions"]
        assert "would repeat its calls since the last answers: pay" in question
        assert "pay 6 is down" in each["told"][0]
    assert "a person rejected this" in refused["told"][1]


def test_c692_only_answers_that_the_framework_takes_are_sent() -> None:
    """A rejection that it does not take ends the run and leaves its thread; another input is refused; its own check counts."""
    found = outcomes()["decisions:all"]
    assert "A person rejected this call" in found["respond"]
    assert "Reason: too much, 1 open" in found["none"]
    for kind in ("langgraph", "openai_agents"):
        assert found[kind] == [20, ["look", "pay 5", "pay 6"], ["amount=5", "amount=6"]]
    # the model wrote a text for the number
    assert (found["written 0"], found["written 1"]) == (["look", "pay 5"], ["look", "pay 4"])


def test_c693_the_context_reaches_the_framework_and_is_not_stored() -> None:
    """Also one that is not JSON, or holds a key."""
    *found, graph = outcomes()["context:all"]
    assert found == [[["True", "True"], False]] * 3
    assert graph == {"said": "Ada"}


def test_c693_options_of_the_frameworks_own_run_reach_it_and_are_not_stored() -> None:
    """Limits hold over all pauses, a session or thread over several runs; an option in the wrong place is named."""
    found = outcomes()["options:all"]
    failed, continued, effects = found["turns"]
    assert "Max turns (1) exceeded" in failed
    assert continued == "Results: 3, paid 5, paid 6"
    hooked = ["hook look", "hook pay", "hook pay"]
    assert effects == [*hooked, "look", "pay 5", "pay 6"]  # none again
    assert found["session"] == [continued, continued]
    assert found["messages"] == 4
    assert found["shared"][0] == {"said": ["Bob"]}
    assert "no thread 't' that waits for this run" in found["shared"][1]
    assert "limit of 1 reached" in found["limits"][0]
    assert "request_limit of 1" in found["limits"][1]
    assert (found["history"], found["stored"]) == ("Results: seen", False)
    similar, taken, misplaced = found["wrong"]
    assert similar == "nb.watch() got 'max_turn'. Did you mean 'max_turns'?"
    assert "this agent's own run config, context" in taken
    assert "belong to nb.watch(agent, …)" in misplaced


def test_c695_rules_and_schemas_reach_the_tools_of_wrapped_toolsets() -> None:
    """A call is one row; an agent with output validators runs as it is."""
    found = outcomes()["toolsets:pydantic_ai"]
    assert [row[:2] for row in found["rows"]] == [
        ["look", "done"],
        ["pay", "done"],
        ["pay", "rejected"],
    ]
    assert "whole number" in found["told"]
    assert found["denied"].count("closed") == 2
    assert "pay 7" in found["effects"]
    assert len([each for each in found["effects"] if "pay" in each]) == 1
    assert found["names"] == ["bank_look", "bank_pay"]
    assert found["reasons"] == ["{'message': 'reason: much\\nlimit: 3'}"] * 2
    assert "Did you mean 'pay'?" in found["typo"]
    assert found["plain"].startswith("Results: 3")


def test_c696_to_input_returns_any_input_and_a_typed_output_is_the_output() -> None:
    """Functional graphs and typed states take it as it is; texts of two messages are two paragraphs."""
    functional, state, trip, texts = outcomes()["inputs:langgraph"]
    assert (functional, state, trip) == ([4, "Ada", "7"], {"amount": 5}, {"nights": 3})
    assert texts[0] == ["<p>I am A.</p><p>I am B.</p>"]
    assert len(texts) == 2  # the returned text is not drawn again


def test_c697_a_pause_that_only_resembles_a_known_form_is_a_question() -> None:
    """So is one whose schema no form can show; bytes and NaN are shown as text."""
    found = outcomes()["odd:langgraph"]
    assert found == [[["ask"], ["x"]]] * 9


def test_c760_what_cannot_be_watched_is_refused_and_so_is_a_rule_on_a_call_that_is_not_gated() -> (
    None
):
    """The accepted types are named; the ungated tool of the rule does not run; a denial by name reaches a gate."""
    found, typos = outcomes()["refused:all"]
    for similar, unknown in (typos[:2], typos[2:]):
        assert "Did you mean 'pay'? A flow has the tools of" in similar
        assert "look, pay" in unknown
        assert ". A flow has the tools of" in unknown
    assert all("takes a compiled LangGraph graph" in one for one in found[:5])
    assert "needs a graph with a checkpointer" in found[5]
    for told, ran, text, then in (found[6:10], found[10:14]):
        assert "cannot apply to this call of 'look'" in told
        assert "gate the tool in its framework" in told
        assert (ran, then) == ("[]", "['look']")
        assert "closed" in text


def test_c760_rules_name_the_tools_of_mcp_servers_and_gates_show_what_runs() -> None:
    """A server that is not connected is named; a shell is asked with its commands."""
    unconnected, denied, allowed, typo = outcomes()["mcp:openai_agents"]
    assert "The tools of 'mcp' cannot be listed: UserError: Server not initialized" in unconnected
    assert ("closed" in denied, "dropped a" in allowed) == (True, True)
    assert "Did you mean 'drop'?" in typo
    ran, rejected, ungated = outcomes()["shell:openai_agents"]
    assert ran == [["shell ['ls']"], [["ls"]], [["shell", "done"]]]
    assert rejected == [[], [["ls"]], [["shell", "rejected"]]]
    assert ungated == [["shell ['ls']"], [], [["shell", "done"]]]


def test_c761_a_kill_loses_no_answer_and_repeats_no_call_unless_a_person_says_so() -> None:
    """Processes are killed after random events and inside tools. ``NBAGENT_THOROUGH=120`` tries all places."""
    count = min(THOROUGH, 120) or 4
    found = child("kills", str(count), "1")
    assert (found["count"], found["wrong"]) == (count, [])


def test_c762_watch_imports_no_framework() -> None:
    """Without an agent, nothing is imported, and the error names what is accepted."""
    before = {"langgraph", "agents", "pydantic_ai"} & set(sys.modules)
    with pytest.raises(nb.errors.UsageError, match="takes a compiled LangGraph graph"):
        nb.watch(object())
    assert {"langgraph", "agents", "pydantic_ai"} & set(sys.modules) == before
