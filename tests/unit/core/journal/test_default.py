"""The store of runs whose agent names none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbagent as nb
from nbagent.core.journal.default import VARIABLE
from nbagent.notebook.cards.display import static_bundle


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    yield
    monkeypatch.delenv(VARIABLE, raising=False)
    nb.use_store(None)


def talker() -> nb.Agent:
    """An agent that says hello."""
    return nb.Agent(nb.ScriptedModel(lambda _messages: "hello"), name="talker")


async def test_c272_one_line_makes_every_run_durable_even_of_earlier_agents(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Read when a run starts; only the first card and one log line name the file; None means memory again."""
    agent = talker()
    with caplog.at_level(logging.INFO, "nbagent"):
        before = agent.run("Hi.")
        await before
        store = nb.use_store(tmp_path / "runs.db")
        assert isinstance(store, nb.SQLiteStore)
        first, second = agent.run("Hi."), agent.run("Hi again.")
        await first
        await second
    assert store.run_ids() == [first.id, second.id]
    assert caplog.text.count("in plain text") == 1
    told = [static_bundle(run) for run in (before, first, second)]
    for mime in ("text/html", "text/plain"):
        assert [str(tmp_path / "runs.db") in one[mime] for one in told] == [False, True, False]
    assert str(tmp_path) not in first.to_html()  # exports are sent to others

    @nb.flow
    def double(n: int) -> int:
        """Double it."""
        return 2 * n

    assert (await double.with_options(id="d").run(2)).output == 4
    assert store.run_ids()[-1] == "d"
    nb.use_store(None)
    await agent.run("Hi.")
    assert len(store.run_ids()) == 3


async def test_c273_the_environment_can_set_the_store_and_a_bad_place_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code wins over the environment; ``memory`` turns the store off; an unusable path is refused at once."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "env.db"))
    run = talker().run("Hi.")
    await run
    assert nb.SQLiteStore(tmp_path / "env.db").run_ids() == [run.id]
    assert isinstance(nb.use_store("memory"), nb.MemoryStore)
    nb.use_store(None)
    with pytest.raises(nb.errors.UsageError, match="is a folder"):
        nb.use_store(tmp_path)
    (tmp_path / "text.txt").write_text("no database at all, and long enough to be read " * 9)
    with pytest.raises(nb.errors.StoreError, match=r"text\.txt"):
        nb.use_store(tmp_path / "text.txt")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "text.txt"))
    with pytest.raises(nb.errors.StoreError, match=r"NBAGENT_STORE=.*text\.txt"):
        talker().run("Hi.")


async def test_a_bad_place_in_the_environment_stops_no_run_with_a_store_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only runs without ``store=`` use the environment's store."""
    monkeypatch.setenv(VARIABLE, "nowhere://x")
    run = talker().run("Hi.", store=tmp_path / "runs.db")
    assert (await run).text == "hello"


async def test_c274_a_run_is_opened_by_its_id_only(tmp_path: Path) -> None:
    """The default store and the newest agent of that name are used; else the error names the agent."""
    store = nb.use_store(tmp_path / "runs.db")
    agent = talker()
    await agent.run("Hi.", id="hi")
    assert (await (await nb.open_run("hi"))).text == "hello"
    agent.name = "somebody else"
    with pytest.raises(
        nb.errors.UsageError, match="of the agent 'talker', and this process has none"
    ):
        await nb.open_run("hi", store=store)


async def test_c272_the_same_path_given_twice_is_the_same_store_with_the_same_handles(
    tmp_path: Path,
) -> None:
    """A rerun cell and an agent's path give the open run of the id; a file created anew is another store."""
    place = tmp_path / "runs.db"
    store = nb.use_store(place)
    agent = talker()
    run = agent.run("Hi.", id="hello")
    await run
    assert nb.use_store(place) is store
    assert agent.run("Hi.", id="hello") is run
    given = nb.SQLiteStore(place, timeout=30)
    assert nb.use_store(given) is given  # unchanged, with its options
    assert agent.run("Hi.", id="hello") is run
    assert nb.Agent(agent.model, name="talker", store=str(place)).run("Hi.", id="hello") is run
    given.close()
    store.close()
    place.unlink()
    assert nb.use_store(place) not in (store, given)
    again = agent.run("Hi.", id="hello")
    assert again is not run
    await again
