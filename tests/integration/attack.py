"""Attacks on the promises: processes are killed at random, answers race, and commands exit.

    python -m tests.integration.attack kills 600 [SEED]
    python -m tests.integration.attack races 800 [SEED]
    python -m tests.integration.attack terminals 200 [SEED]
    python -m tests.integration.attack exits 500 [SEED] postgresql
    python -m tests.integration.attack kills 40 [SEED] postgresql

Each round has its own seed. If a round fails, repeat it with
``python -m tests.integration.attack kills 1 SEED``. The processes (``attack_worker``) are forked,
because starting one takes a second.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from nbagent.core.base.events import (
    BodyCalled,
    Interrupted,
    Resolved,
    RunCompleted,
    RunRetried,
    RunStarted,
    StoredEvent,
    ToolFinished,
    ToolStarted,
    parse,
)
from nbagent.core.base.interrupts import Respond, Restart
from nbagent.core.state.fold import apply
from nbagent.core.state.state import RunEnd, RunState
from tests import postgres
from tests.integration.attack_worker import SECRET, main

PATIENCE = 60.0
"""Seconds without a reply after which a process counts as hanging."""
FORK = multiprocessing.get_context("fork")


class Hangs(AssertionError):
    """A process that did not reply."""


class Victim:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pipe, theirs = FORK.Pipe()
        self.process = FORK.Process(target=main, args=(theirs, folder), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Call a method of the worker and return its reply; None if the process dies."""
        self.tell(verb, **arguments)
        return self.hear()

    def tell(self, verb: str, **arguments: Any) -> None:
        """Call a method of the worker without waiting for the reply."""
        try:
            self._pipe.send((verb, arguments))
        except OSError:  # the process is dead
            return

    def hear(self) -> Any:
        """The worker's next reply; None if the process is dead."""
        if not self._pipe.poll(PATIENCE):
            os.kill(self.process.pid or 0, signal.SIGUSR1)
            time.sleep(0.5)
            stacks = (self._folder / f"stderr-{self.process.pid}").read_text()[-6000:]
            raise Hangs(f"process {self.process.pid} hangs:\n{stacks}")
        try:
            reply = self._pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return None
        assert not (isinstance(reply, dict) and "error" in reply), reply
        return reply

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()
        self._pipe.close()


class Attack:
    """The state that rounds share: a folder with the store, and processes that survive a round."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.places: Counter[str] = Counter()
        """How often processes died at each place of a moment."""
        self.run_id = ""
        """The run of this round."""
        self.starting = 1.0
        """Seconds that the last command took to start and answer."""
        self._kept: list[Victim] = []

    def kept(self, number: int) -> Victim:
        """A process that no round kills."""
        while len(self._kept) <= number:
            self._kept.append(Victim(self.folder))
        return self._kept[number]

    def end(self) -> None:
        """Kill the surviving processes."""
        for each in self._kept:
            each.kill()
        self._kept.clear()

    def lines(self, name: str) -> list[str]:
        """The lines that the processes wrote to a file."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def effects(self, token: str) -> list[str]:
        """The names of the bodies that ran for a token, in any process."""
        lines = (line.split() for line in self.lines("effects"))
        return [what for what, told, _ in lines if told == token]

    def events(self, run_id: str) -> list[StoredEvent]:
        """The run's journal, read from the store."""
        return [parse(line) for line in self.kept(0).ask("journal", run_id=run_id)]

    def told(self) -> str:
        """The journal of this round's run, shortened; read by a new process."""
        self.end()
        told = []
        for event in self.events(self.run_id):
            facts = event.model_dump(
                exclude_defaults=True, exclude={"metadata", "messages", "digest"}
            )
            told.append(f"  {event.type} {json.dumps(facts, default=str)[:300]}")
        return "\n".join(told)

    def check_files(self) -> None:
        """P13: no secret in any file of the store."""
        for path in self.folder.iterdir():
            if path.name.startswith(("runs", "stderr")):
                data = path.read_bytes()
                at = data.find(SECRET.encode())
                assert at < 0, f"a secret is in {path.name}: {data[max(0, at - 400) : at + 100]!r}"
        self.places.update(self.lines("deaths"))
        for path in (self.folder / each for each in ("effects", "accepted", "deaths")):
            path.unlink(missing_ok=True)


# --- kills

TOOLS = [
    *("plain", "thread", "streaming", "steady", "approved", "secretive", "denied"),
    *("question", "gate", "hurried", "asks", "asks_in_thread", "asks_secret"),
]
NESTS = ("calls", "calls")
INSIDE = {"calls": {"a": "called", "b": "called_approved", "g": "gate", "p": "plain"}}
"""The tools that a body calls, by the ending of their tokens."""
NEVER = "denied"
ONCE = {
    "asks": ("step", "asks"),
    "calls": ("calls_step", "calls_after_0", "calls_after_1", "calls"),
}
"""The effects that a body has once, if they are not named like its tool."""


def calls_of_round(chance: random.Random, name: str, *, deep: bool = True) -> tuple[list[Any], Any]:
    """Turns of calls, and the tool of each token."""
    turns, tools = [], {}
    for turn in range(chance.choice((1, 1, 2))):
        calls: list[Any] = []
        for number in range(chance.randint(1, 4)):
            token = f"{name}.{turn}.{number}"
            if deep and chance.random() < 0.2:
                inside, told = calls_of_round(chance, f"{token}.b", deep=False)
                calls.append(["banker", {"prompt": json.dumps(inside)}])
                tools |= told
                continue
            tool = chance.choice([*TOOLS, *NESTS] if deep else TOOLS)
            tools[token] = tool
            tools |= {f"{token}.{end}": each for end, each in INSIDE.get(tool, {}).items()}
            more = {"secretive": {"password": f"$SECRET-{token}"}, "approved": {"amount": 1}}
            calls.append([tool, {"token": token, **more.get(tool, {})}])
        turns.append(calls)
    return turns, tools


def death(chance: random.Random) -> dict[str, Any]:
    """Options of ``Worker.die``: the process dies at a given moment or after some seconds."""
    by_moment = chance.random() < 0.6
    return {
        "moment": chance.randint(1, 45) if by_moment else 0,
        "seconds": 1.5 if by_moment else chance.uniform(0.005, 0.5),
        "machine": "elsewhere" if chance.random() < 0.05 else "",
        "seed": chance.randrange(10**9),
    }


KINDS = ("run", "run", "run", "flow", "queued", "chat", "background")


def started_runs(
    victim: Victim, chance: random.Random, name: str, *, attended: bool
) -> tuple[list[str], list[dict[str, str]]]:
    """Start one or two runs in a process; return their ids and, for each run, the tool of each token."""
    kind = chance.choice(KINDS)
    if kind == "flow":
        tools = {f"{name}.0.0": "calls"}
        tools |= {f"{name}.0.0.{end}": each for end, each in INSIDE["calls"].items()}
        return victim.ask("begin_flow", token=f"{name}.0.0", attended=attended), [tools]
    turns, tools = calls_of_round(chance, name)
    if kind == "run":
        return [victim.ask("begin", turns=turns, attended=attended)], [tools]
    more, others = calls_of_round(chance, f"{name}q")
    told = {"first": turns, "second": more, "kind": kind, "attended": attended}
    return victim.ask("begin_thread", **told), [tools, others]


def kill_round(attack: Attack, seed: int) -> None:
    """Processes that die drive and answer runs, until a survivor ends the runs."""
    chance = random.Random(seed)

    def how() -> dict[str, Any]:
        kinds = ("settled", "settled", "eager", "eager", "unattended")
        return {"how": chance.choice(kinds), "seed": chance.randrange(10**9), "cancels": 0.004}

    victims = [Victim(attack.folder)]
    survivor = attack.kept(0)
    try:
        first = how()
        run_ids, tools = started_runs(
            victims[0], chance, f"k{seed}", attended=first["how"] != "unattended"
        )
        attack.run_id = run_ids[0]
        victims[0].ask("die", **death(chance))
        if chance.random() < 0.3:
            first["how"] = "waits"
        victims[0].tell("pilots", run_ids=run_ids, **first)
        if chance.random() < 0.4:  # like a terminal or an inbox; this process dies as well
            victims.append(Victim(attack.folder))
            victims[-1].ask("die", **death(chance))
            victims[-1].tell("answer_by_record", run_ids=run_ids, seed=chance.randrange(10**9))
        beside = chance.random() < 0.5
        if beside:
            survivor.tell("pilots", run_ids=run_ids, **how())
        said: dict[Victim, Any] = {}
        for _ in range(chance.choice((0, 1, 1, 2))):
            if chance.random() < 0.5 and victims[-1] not in said:
                said[victims[-1]] = victims[-1].hear()
            victims.append(Victim(attack.folder))
            victims[-1].ask("die", **death(chance))
            victims[-1].tell("pilots", run_ids=run_ids, **how())
        if not beside:
            if chance.random() < 0.7:
                said[victims[-1]] = victims[-1].hear()
            survivor.tell("pilots", run_ids=run_ids, **how())
        ends = survivor.hear()
        assert ends is not None, "the survivor died"
        others = [said[each] if each in said else each.hear() for each in victims]
        attack.counts["kills"] += others.count(None)
        other = attack.kept(1).ask("pilots", run_ids=run_ids, how="settled", seed=seed)
    finally:
        for victim in victims:
            victim.kill()
    assert all(each in (None, [], ends) for each in (other, *others)), (ends, other, others)
    for run_id, of_run, end in zip(run_ids, tools, ends, strict=True):
        attack.run_id = run_id
        assert not end["unhandled"], end
        ended_well = end["status"] in ("completed", "cancelled")
        assert ended_well or "A person says: no" in end["text"], end  # a rejection fails a flow
        attack.counts[end["status"]] += 1
        check_run(attack, run_id, of_run, end)


def check_run(attack: Attack, run_id: str, tools: dict[str, str], end: Any) -> None:
    """Check the journal of a run against the effects and the accepted answers."""
    events = attack.events(run_id)
    state = RunState()
    for event in events:
        state = apply(state, event)
    assert state.status == end["status"]
    assert isinstance(events[-1], RunEnd), f"something came after the end: {events[-1].type}"
    resolved = [event for event in events if isinstance(event, Resolved)]
    by_id = {event.id: event for event in resolved}
    assert len(by_id) == len(resolved), "an interrupt was answered twice"
    for line in attack.lines("accepted"):
        told, interrupt, by, kind = json.loads(line)
        if told == run_id:
            attack.counts["answers"] += 1
            kept = by_id.get(interrupt)
            assert kept is not None, f"the answer of {by} to {interrupt} is lost"
            assert (kept.by, kept.resolution.type) == (by, kind), (kept, by, kind)
    for token, tool in tools.items():
        body = token.rpartition(".")[0]
        ran_through = body not in tools or _returned(events, body)
        is_over = end["status"] == "completed" and ran_through
        check_call(attack, events, by_id, token, tool, is_over=is_over)


def check_call(
    attack: Attack,
    events: list[StoredEvent],
    answers: dict[str, Resolved],
    token: str,
    tool: str,
    *,
    is_over: bool,
) -> None:
    """Check that the body of a call ran only as often as it was allowed to, and never earlier."""
    mine = events_of_call(events, token)
    done = Counter(attack.effects(token))
    started = [n for n, e in enumerate(mine) if isinstance(e, ToolStarted)]
    finished = [e for e in mine if isinstance(e, ToolFinished)]
    asked = [e for e in mine if isinstance(e, Interrupted)]
    restarted = {
        kind: [i for i in asked if i.kind == kind and _restarts(answers.get(i.id))]
        for kind in ("approval", "tool", "lost")
    }
    again = sum(
        answers[i.id].by != "idempotent=True" or tool == "steady" for i in restarted["lost"]
    )
    attack.counts["lost"] += sum(i.kind == "lost" for i in asked)
    told = f"{tool} {token}: {dict(done)}, {[e.type for e in mine]}"
    assert len(finished) <= 1, told
    assert sum(i.kind == "lost" for i in asked) <= len(started), told
    if tool in (NEVER, "question"):
        assert not done, told
        assert not started, told
        return
    for what in ONCE.get(tool, (tool,)):
        assert done[what] <= 1 + again, told
    assert done[tool] <= len(started), told
    if tool in ("approved", "called_approved", "secretive", "gate", "hurried"):
        kind = "tool" if tool in ("gate", "hurried") else "approval"
        own = started if kind == "approval" else started[1:]
        if done[tool] or (own and kind == "approval"):
            assert restarted[kind], told
            ok = min(n for n, e in enumerate(mine) if isinstance(e, Resolved) and _restarts(e))
            assert own[0] > ok, told
    if tool in ("asks", "asks_in_thread"):
        numbers = Counter(i.ask for i in asked if i.kind == "ask")
        assert all(n == 1 for n in numbers.values()), f"asked again: {told}"
    if is_over and finished:
        check_result(mine, finished[0], token, done[tool], told)
    elif is_over:  # a person ended the call
        assert isinstance(mine[-1], Resolved), told
        assert not isinstance(mine[-1].resolution, Restart), told


def check_result(
    mine: list[StoredEvent], finished: ToolFinished, token: str, done: int, told: str
) -> None:
    """Check that the result matches the body's effects and the answers of people."""
    asks = {e.id for e in mine if isinstance(e, Interrupted) and e.kind == "ask"}
    given = [e.resolution for e in mine if isinstance(e, Resolved) and e.id in asks]
    replies = [str(each.output) for each in given if isinstance(each, Respond)]
    output = str(finished.output)
    assert finished.error or f"did {token}" in output, (told, output)
    if finished.error:
        assert len(replies) < len(given) or "denied" in told, (told, output)
    else:
        assert done >= 1, told
        assert "asks_secret" in told or all(r in output for r in replies)


def _restarts(answer: Resolved | None) -> bool:
    return answer is not None and isinstance(answer.resolution, Restart)


def _returned(events: list[StoredEvent], token: str) -> bool:
    """Whether the body of a call returned and no person ended the call."""
    return any(isinstance(e, ToolFinished) and not e.error for e in events_of_call(events, token))


def events_of_call(events: list[StoredEvent], token: str) -> list[StoredEvent]:
    """The events of the call with this token in its input, made by a model or by a body."""
    for event in events:
        if isinstance(event, RunStarted) and event.flow:
            for part in event.messages[-1]["content"]:
                if part.get("input", {}).get("token") == token:
                    return [
                        e
                        for e in events
                        if (e.scope, getattr(e, "call_id", "")) == ((), part["id"])
                    ]
        by_body = [event] if isinstance(event, BodyCalled) else []
        for call in (*getattr(event, "calls", ()), *by_body):
            if call.input.get("token") == token:
                where = (event.scope, call.call_id if by_body else call.id)
                return [e for e in events if (e.scope, getattr(e, "call_id", "")) == where]
    return []


# --- races

RACES = ("answers", "answers", "answers", "cancel", "deadline", "retry", "fork", "terminal")


COMMANDS = ("terminal", "terminal", "terminal", "command")
"""``nbagent answer`` in an existing process, or in its own process, which takes a second to start."""


def terminal_round(attack: Attack, seed: int) -> None:
    """Two processes with an open run and the command ``nbagent answer`` answer one question at once."""
    race_round(attack, seed, ("terminal",))


def start_delay(attack: Attack, way: str, chance: random.Random) -> float:
    """Seconds that the other processes wait until a command has started."""
    attack.counts[f"by {way}"] += 1
    return attack.starting * chance.uniform(0.6, 1.1) if way == "command" else 0.0


def race_round(attack: Attack, seed: int, kinds: tuple[str, ...] = RACES) -> None:
    """Several processes and threads act on one run at once."""
    chance = random.Random(seed)
    kind = chance.choice(kinds)
    attack.counts[kind] += 1
    tool = {
        "deadline": "hurried",
        "retry": "fails_once",
        "answers": chance.choice(("gate", "approved", "question", "asks")),
        "fork": "approved",
        "terminal": chance.choice(("gate", "approved")),
        "cancel": chance.choice(("gate", "approved", "asks")),
    }[kind]
    token = f"r{seed}"
    more = {"amount": 1} if tool == "approved" else {}
    turns = [[[tool, {"token": token, **more}], ["plain", {"token": f"{token}.p"}]]]
    if kind != "retry" and chance.random() < 0.3:
        turns = [[["banker", {"prompt": json.dumps(turns)}]]]
    workers = [attack.kept(n) for n in range(3)]
    workers = workers if kind == "terminal" else workers[: chance.choice((2, 3, 3))]
    holders = workers[:2] if kind == "terminal" else workers
    run_id = attack.run_id = workers[0].ask("begin", turns=turns)
    if kind != "deadline":
        workers[0].ask("settle", run_id=run_id)
    asked: list[Any] = []
    for worker in holders:
        worker.tell("settle", run_id=run_id)
    for worker in holders:
        asked = worker.hear() or asked
    if kind == "retry":
        race_retry(attack, workers, run_id, token, chance)
        return
    mine = [i for i in asked if i[0] == tool]
    if not mine:
        assert kind == "deadline"
        finish(attack, workers, run_id, {token: tool}, chance)
        return
    [[_, interrupt, how, expires]] = mine
    answers = {"question": ["respond"], "ask": ["respond", "reject"]}.get(
        how, ["restart", "restart", "reject", "respond"]
    )
    acts = [
        [[chance.choice(answers), interrupt] for _ in range(chance.randint(1, 2))] for _ in workers
    ]
    if kind in ("cancel", "fork"):
        acts[-1] = [[kind]] if kind == "cancel" else [[kind, chance.choice(("", interrupt))]]
    at = expires if kind == "deadline" else time.time() + 0.02
    if kind == "terminal":
        acts[-1] = [[chance.choice(COMMANDS), interrupt]]
        at += start_delay(attack, acts[-1][0][0], chance)
    at = max(at + chance.uniform(-0.006, 0.006), time.time() + 0.01)
    said = together(attack, workers, acts, run_id, at, chance)
    judge(attack, kind, interrupt, run_id, said)
    forks = [by for what, by, told in said if what == "fork" and told == "won"]
    end = finish(attack, workers, run_id, {token: tool, f"{token}.p": "plain"}, chance)
    if kind != "cancel":
        assert end["status"] == "completed", end
    for fork in forks:
        check_fork(attack, workers[-1], run_id, fork, token, seed)


def together(
    attack: Attack, workers: list[Victim], acts: Any, run_id: str, at: float, chance: Any
) -> list[Any]:
    """Let all workers act at once; return the outcome of each act."""
    began = time.monotonic()
    for worker, does in zip(workers, acts, strict=True):
        seed = chance.randrange(10**9)
        worker.tell("race", run_id=run_id, at=at, acts=does, seed=seed)
    said = [each for worker in workers for each in worker.hear()]
    if any(what == "command" for what, *_ in said):
        attack.starting = time.monotonic() - began
    return said


def judge(attack: Attack, kind: str, interrupt: str, run_id: str, said: list[Any]) -> None:
    """P2: one answer wins, and the other answers get an error that names the winner."""
    answers = [(by, told) for what, by, told in said if what not in ("cancel", "fork")]
    for what, _, told in said:
        if what in COMMANDS and told == "won":
            attack.counts[f"won by {what}"] += 1
    won = [by for by, told in answers if told == "won"]
    kept = [e for e in attack.events(run_id) if isinstance(e, Resolved) and e.id == interrupt]
    assert len(kept) <= 1, kept
    assert won == [e.by for e in kept if e.by != "expiry"], (kind, said, kept)
    if kind in ("answers", "fork", "terminal"):
        assert len(won) == 1, said
    for by, told in answers:
        if told == "won":
            continue
        attack.counts["refused"] += 1
        names = [f"by {e.by} at" for e in kept]
        late = {"cancel": ("cancelled",), "deadline": ("has expired",)}.get(kind, ())
        assert any(word in told for word in (*names, *late)), (kind, by, told, kept)
    for what, by, told in said:
        if what == "cancel":
            assert told == "won", (by, told)
        if what == "fork":
            attack.counts["forked" if told == "won" else "fork refused"] += 1
            assert told == "won" or "they are still running, or their process ended" in told, told


def race_retry(
    attack: Attack, workers: list[Victim], run_id: str, token: str, chance: random.Random
) -> None:
    """A failed run is retried once."""
    acts = [[["retry"]] for _ in workers]
    said = together(attack, workers, acts, run_id, time.time() + 0.02, chance)
    won = [by for _, by, told in said if told == "won"]
    ends = ends_of(workers, run_id, chance)
    assert all(end == ends[0] for end in ends), ends
    events = attack.events(run_id)
    retried = sum(isinstance(e, RunRetried) for e in events)
    attack.counts["retried"] += retried
    assert retried == 1 <= len(won), (said, retried)  # a retry that must wait is refused later
    for _, _, told in said:
        assert told == "won" or "Only a failed run" in told or "in another process" in told, told
    assert len(attack.effects(token)) == 1 + retried, attack.effects(token)
    assert ends[0]["status"] == "completed", ends[0]
    assert len(attack.effects(f"{token}.p")) == 1


def ends_of(workers: list[Victim], run_id: str, chance: random.Random) -> list[Any]:
    """Each worker's report of the run's end."""
    for worker in workers:
        how = chance.choice(("settled", "eager"))
        worker.tell("pilot", run_id=run_id, how=how, seed=chance.randrange(10**9))
    ends = [worker.hear() for worker in workers]
    for end in ends:
        assert end is not None
        assert not end.pop("unhandled"), end
    return ends


def finish(
    attack: Attack, workers: list[Victim], run_id: str, tools: dict[str, str], chance: Any
) -> Any:
    """Answer the remaining questions; check that all workers report the same end."""
    ends = ends_of(workers, run_id, chance)
    assert all(end == ends[0] for end in ends), ends
    check_run(attack, run_id, tools, ends[0])
    return ends[0]


def check_fork(
    attack: Attack, worker: Victim, run_id: str, fork: str, token: str, seed: int
) -> None:
    """Check that a fork ends, and that no body ran more often than the two journals say."""
    end = worker.ask("pilot", run_id=fork, how="settled", seed=seed)
    assert end["status"] in ("completed", "cancelled"), end
    for each in (token, f"{token}.p"):
        started = {
            (e.at, e.call_id, e.owner)
            for run in (run_id, fork)
            for e in events_of_call(attack.events(run), each)
            if isinstance(e, ToolStarted)
        }
        assert len(attack.effects(each)) == len(started), (each, started)


# --- exits

CLERK = """
from pathlib import Path
from tests.integration.attack_worker import make_agent, store_in

here = Path(__file__).parent
agent, _ = make_agent(store_in(here), here)
"""
"""A person's module; a command continues the run of its agent."""


def exit_round(attack: Attack, seed: int) -> None:
    """A command answers a run whose process is dead, continues it to its end, and exits with 0."""
    token = f"e{seed}"
    clerk = attack.folder / "clerk.py"
    clerk.write_text(CLERK)
    turns = [
        [["approved", {"token": token, "amount": 1}], ["thread", {"token": f"{token}.t"}]],
        [["streaming", {"token": f"{token}.s"}]],
    ]
    victim = Victim(attack.folder)
    try:
        run_id = attack.run_id = victim.ask("begin", turns=turns)
        victim.ask("settle", run_id=run_id)
    finally:
        victim.kill()
    url = attack.folder / "url"
    store = url.read_text() if url.exists() else str(attack.folder / "runs.db")
    words = ["answer", run_id, "--approve", "--agent", f"{clerk}:agent", "--store", store]
    command = [sys.executable, "-X", "faulthandler", "-m", "nbagent", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-6000:])
    assert isinstance(attack.events(run_id)[-1], RunCompleted)
    for each in (token, f"{token}.t", f"{token}.s"):
        assert len(attack.effects(each)) == 1, (each, attack.effects(each))


# --- all of them

ROUNDS: dict[str, Callable[[Attack, int], None]] = {
    "kills": kill_round,
    "races": race_round,
    "terminals": terminal_round,
    "exits": exit_round,
}
BATCH = 50
"""Rounds on one file, before new processes are started."""


def run(what: str, number: int, seed: int, server: Path | None = None) -> int:
    """Play ``number`` rounds, in files or in databases of a server; return the number of failed rounds."""
    began, failures, total = time.monotonic(), 0, Counter[str]()
    places = Counter[str]()
    while total[what] < number:
        with tempfile.TemporaryDirectory() as folder:
            if server is not None:
                (Path(folder) / "url").write_text(postgres.database(server))
            attack = Attack(Path(folder))
            for _ in range(BATCH):
                if attack.counts[what] + total[what] >= number:
                    break
                attack.counts["rounds"] += 1
                if what != "kills":
                    attack.counts[what] += 1
                try:
                    ROUNDS[what](attack, seed)
                except Exception:
                    failures += 1
                    why = traceback.format_exc()
                    print(f"seed {seed} failed:\n{why}\n{attack.told()}", flush=True)
                seed += 1
            attack.end()
            attack.check_files()
            total += attack.counts
            places += attack.places
            print(f"{total[what]} {what}, {failures} failed, next seed {seed}", flush=True)
    if what == "kills":
        places["at any other time"] = total["kills"] - places.total()
        print("\n".join(f"{count:5} {place}" for place, count in sorted(places.items())))
    figures = ", ".join(f"{count} {name}" for name, count in sorted(total.items()))
    print(f"{figures}; {failures} failed; {time.monotonic() - began:.0f} s", flush=True)
    return failures


if __name__ == "__main__":
    by_server = "postgresql" in sys.argv
    kind, many, *given = [word for word in sys.argv[1:] if word != "postgresql"]
    first = int(given[0]) if given else random.SystemRandom().randrange(10**6)
    print(f"{many} {kind} from seed {first} on", flush=True)
    with postgres.server() if by_server else nullcontext() as place:
        failed = run(kind, int(many), first, place)
    sys.exit(failed != 0)
