"""A run's cost grows only by decision: ``tests/bench/figures.json`` stores the counts and the known exceptions."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbagent
from tests.bench.capabilities import CAPABILITIES, Capability, is_in
from tests.bench.figures import ACCEPT, counts, grown, passed, stored_figures, surplus
from tests.bench.journeys import Step

Calls = dict[str, dict[str, dict[str, int]]]


@pytest.fixture(scope="module")
def calls() -> Calls:
    """Calls into the code of each capability, in runs without it and with it."""
    return passed()


def test_p18_the_cost_of_a_run_grows_only_where_the_figures_file_says_so():
    """Counts: functions, files and calls of four journeys, events and bytes of a plain run, loaded modules."""
    now = counts()
    more = grown(stored_figures()["counts"], now)
    assert more == [], f"{'; '.join(more)}. If it has to be: {ACCEPT}"
    assert sorted(now) == sorted(stored_figures()["counts"]), f"counts came or went: {ACCEPT}"


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one.name)
def test_p18_a_run_calls_no_code_of_unused_capabilities(capability: Capability, calls: Calls):
    """An agent or run finds out its needs once, at creation; the number of known calls may only fall."""
    told = surplus(
        calls[capability.name]["without"], stored_figures()["known"].get(capability.name, 0)
    )
    assert not told, (
        f"{capability.name}: {told}\nFind out what the agent or run needs once, as it is made; "
        "where that cannot be, raise the number in `known` of tests/bench/figures.json, with a reason"
    )


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one.name)
def test_a_run_with_a_capability_calls_each_part_of_its_code(capability: Capability, calls: Calls):
    """A renamed file or function of the table is reported, since no call into it could be found."""
    entered = [Step(*step.split(":")) for step in calls[capability.name]["with"]]
    parts = [part for part in capability.room if not any(is_in(step, part) for step in entered)]
    assert parts == []


def test_every_known_exception_belongs_to_a_capability_and_a_run():
    """No exception has an unknown name or a count of zero."""
    known = stored_figures()["known"]
    assert set(known) <= {one.name for one in CAPABILITIES}
    assert all(known.values())


def test_a_count_that_grew_by_more_than_three_percent_or_is_new_is_reported():
    """The report has old and new count; a smaller count is fine."""
    before = {"calls": 100, "files": 10, "bytes": 1000, "gone": 5}
    assert grown(before, {"calls": 103, "files": 9, "bytes": 1030}) == []
    told = grown(before, {"calls": 104, "files": 11, "bytes": 1031, "modules": 7})
    assert told == [
        "calls grew from 100 to 104",
        "files grew from 10 to 11",
        "bytes grew from 1000 to 1031",
        "modules is new: 7",
    ]


def test_one_more_call_into_unused_code_is_reported():
    """The report names the called functions."""
    found = {"core/chat.py:Chat.send": 2, "core/chat.py:Chat.stop": 1}
    assert surplus(found, 3) == ""
    assert "3 calls" in surplus(found, 2)
    assert "\n  2 core/chat.py:Chat.send" in surplus(found, 0)


def test_a_room_is_files_folders_or_functions_of_them():
    """As written in the table of capabilities."""
    step = Step("core/tools/tool.py", "Tool.parse")
    assert is_in(step, "core/tools/tool.py")
    assert is_in(step, "core/")
    assert is_in(step, "core/tools/tool.py:Tool")
    assert is_in(step, "core/tools/tool.py:Tool.parse")
    assert not is_in(step, "core/tools/tool.py:To")
    assert not is_in(step, "core/tools/too")
    assert not is_in(step, "tools/")
    assert (Path(nbagent.__file__).parent / step.file).exists()
