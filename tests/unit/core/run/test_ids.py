"""Runs with an id from the caller: the same id opens the same run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.run import run_ids


def asking(store: nb.Store, did: list[str]) -> nb.Agent:
    """An agent whose tool needs an approval before it works."""
    agent = nb.Agent(
        nb.ScriptedModel([nb.ScriptedModel.call("deliver", to="Ada"), "delivered"]), store=store
    )

    @agent.tool(approval=True)
    def deliver(to: str) -> str:
        """Deliver."""
        did.append(to)
        return "done"

    return agent


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> nb.Store:
    """A store of each kind."""
    return nb.MemoryStore() if request.param == "memory" else nb.SQLiteStore(tmp_path / "runs.db")


async def test_c266_the_same_id_is_the_same_run_here_and_its_result_is_returned_at_once(
    store: nb.Store,
) -> None:
    """``run`` returns the open run or the ended run's result. The prompt may be left out, and nothing is repeated."""
    did: list[str] = []
    agent = asking(store, did)
    run = agent.run("Deliver it.", id="session-1")
    assert run.id == "session-1"
    await run.settled()
    assert agent.run("Deliver it.", id="session-1") is run
    assert agent.run(id="session-1") is run
    run.approve(run.interrupts[0])
    assert (await run).text == "delivered"
    again = agent.run("Deliver it.", id="session-1")
    assert (await again).text == "delivered"
    assert did == ["Ada"]
    assert store.run_ids() == ["session-1"]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide open runs, as if each store object belonged to another process."""
    monkeypatch.setattr(run_ids, "find_session", lambda _run_id, _store: None)


@pytest.mark.usefixtures("elsewhere")
async def test_c267_another_process_opens_the_run_of_that_id_with_its_question(
    tmp_path: Path,
) -> None:
    """The stored events are enough."""
    did: list[str] = []
    first = asking(nb.SQLiteStore(tmp_path / "runs.db"), did).run("Deliver it.", id="session-1")
    await first.settled()
    other = nb.Agent(
        nb.ScriptedModel(lambda _messages: "delivered"), store=nb.SQLiteStore(tmp_path / "runs.db")
    )
    other.add(nb.tool(approval=True)(_deliver(did)))
    run = other.run("Deliver it.", id="session-1")
    assert run is not first
    assert [i.tool_name for i in run.interrupts] == ["deliver"]
    run.approve(run.interrupts[0])
    assert (await run).text == "delivered"
    assert did == ["Ada"]


def _deliver(did: list[str]):  # type: ignore[no-untyped-def]
    def deliver(to: str) -> str:
        """Deliver."""
        did.append(to)
        return "done"

    return deliver


async def test_c268_the_same_id_with_another_prompt_or_agent_is_refused_with_both(
    store: nb.Store,
) -> None:
    """Nothing starts, and the message shows the old and the new prompt."""
    agent = nb.Agent(nb.ScriptedModel(["one", "two"]), store=store)
    await agent.run("First.", id="a")
    with pytest.raises(nb.errors.UsageError, match=r"First\..*Second\..*another id"):
        agent.run("Second.", id="a")
    with pytest.raises(nb.errors.UsageError, match="belongs to 'agent', not to 'other'"):
        nb.Agent(nb.ScriptedModel(["x"]), name="other", store=store).run("First.", id="a")
    with pytest.raises(nb.errors.UsageError, match=r"has no run 'b'. Pass a prompt"):
        agent.run(id="b")
    with pytest.raises(nb.errors.UsageError, match="a run's id must be a string"):
        agent.run("First.", id="no spaces")
    assert store.run_ids() == ["a"]


async def test_c269_a_failed_run_is_opened_as_failed_and_retried_by_hand(store: nb.Store) -> None:
    """An id means one run, which does not silently start again."""
    agent = nb.Agent(nb.ScriptedModel([RuntimeError("down"), "up"]), store=store)
    with pytest.raises(nb.errors.RunError):
        await agent.run("Go.", id="a")
    run = agent.run("Go.", id="a")
    assert run.status == "failed"
    assert (await run.retry()).text == "up"


@pytest.mark.usefixtures("elsewhere")
async def test_c270_of_many_that_start_one_id_at_once_one_starts_and_the_others_follow(
    tmp_path: Path,
) -> None:
    """Each thread has its own store object: there is one run and one result, and no thread gets an error."""
    asked: list[int] = []

    def begin(number: int) -> str:
        agent = nb.Agent(
            nb.ScriptedModel([f"by {number}"]), store=nb.SQLiteStore(tmp_path / "runs.db")
        )
        asked.append(number)
        return agent.run_sync("Go.", id="one").text

    nb.SQLiteStore(tmp_path / "runs.db")
    said = await asyncio.gather(*(asyncio.to_thread(begin, n) for n in range(6)))
    assert len(set(said)) == 1
    kinds = [type(e).__name__ for e in nb.SQLiteStore(tmp_path / "runs.db").read("one")]
    assert kinds == ["RunStarted", "ModelResponded", "RunCompleted"]
    assert len(asked) == 6


async def test_c271_a_flow_has_ids_too(store: nb.Store) -> None:
    """``with_options`` takes the id; the same input opens the run, another input is refused."""
    did: list[int] = []

    @nb.flow(store=store)
    def double(n: int) -> int:
        """Double it."""
        did.append(n)
        return 2 * n

    named = double.with_options(id="double-2")
    assert (await named.run(2)).output == 4
    assert (await named.run(2)).output == 4
    assert did == [2]
    with pytest.raises(nb.errors.UsageError, match="another id"):
        named.run(3)


async def test_a_run_inside_a_body_cannot_have_an_id() -> None:
    """A run inside a call belongs to the run around it."""
    inner = nb.Agent(nb.ScriptedModel(["inner"]))
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("starts"), "end"]))

    @agent.tool
    async def starts() -> str:
        """Start one."""
        try:
            return (await inner.run("x", id="a")).text
        except nb.errors.UsageError as error:
            return str(error)

    run = agent.run("go")
    await run
    assert "nested=False" in run.calls["starts"][0].output


async def test_c266_new_answers_are_used_when_the_same_line_runs_again(store: nb.Store) -> None:
    """The error of the first call says to pass them."""
    agent = nb.Agent(
        nb.ScriptedModel([nb.ScriptedModel.call("ask"), "Done."]), tools=[nb.interrupt_tool("ask")]
    )
    with pytest.raises(nb.HumanInputRequired):
        await agent.run("go", id="march", store=store, attended=False)
    run = agent.run("go", id="march", store=store, attended=False, answers={"ask": "yes"})
    assert (await run).text == "Done."


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("kind", ["memory", "file", "database"])
async def test_c246_the_id_of_a_deleted_run_starts_a_new_one_while_a_handle_is_open(
    kind: str, ends: bool, tmp_path: Path
) -> None:
    """The old handle reports the deletion."""
    path = tmp_path / "runs.db"
    makers: dict[str, Callable[[], nb.Store]] = {
        "memory": nb.MemoryStore,
        "file": lambda: nb.SQLiteStore(path),
        "database": lambda: nb.SQLStore(f"sqlite:///{path}"),
    }
    store = makers[kind]()
    steps: list[Any] = ["Old."] if ends else [nb.ScriptedModel.call("ask")]
    agent = nb.Agent(nb.ScriptedModel([*steps, "New."]), tools=[nb.interrupt_tool("ask")])
    old = agent.run("go", id="march", store=store, show=False, attended=True)
    await old.settled()
    nb.delete_run("march", store=store)
    assert (await agent.run("go", id="march", store=store, show=False)).text == "New."
    for wait in (old, old.settled()):
        with pytest.raises(nb.errors.StoreError, match="was deleted"):
            await wait


async def test_a_run_is_opened_by_its_id_only() -> None:
    """The error names the argument."""
    for wrong in (None, 7):
        with pytest.raises(nb.errors.UsageError, match="run_id must be the id of a run"):
            await nb.open_run(wrong)  # type: ignore[arg-type]
