"""A batch on a Dask cluster under attack: workers are killed, the cluster restarts, shrinks and grows, the driver dies.

    python -m tests.integration.batch_attack [rows] [asking] [kills] [seed]

The tools log each start of a body; the attack prints the counts. ``NBAGENT_THOROUGH`` makes the test's attack large.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import nbagent as nb
from tests import postgres as servers


class Attack(NamedTuple):
    """The size of an attack."""

    rows: int = 60
    asking: int = 10
    kills: int = 3
    seed: int = 0


class Outcome(NamedTuple):
    """The outcome of an attack."""

    began: Counter[str]
    """The number of starts of each body."""
    restarted: set[str]
    """The bodies that a person restarted."""
    counts: dict[str, int]
    kills: int
    seconds: float


def agent_of(log: str, asking: int) -> nb.Agent:
    """The first rows ask to pay; the other rows look. Each body logs its start and takes 0.05 s."""

    def reply(messages: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return "done"
        n = int(messages[-1]["content"][0]["text"].split()[-1])
        return [nb.ScriptedModel.call("pay" if n < asking else "look", n=n)]

    agent = nb.Agent(nb.ScriptedModel(reply), name="attacked", policy=[nb.review("pay")])

    def note(line: str) -> None:
        with open(log, "a") as file:
            file.write(line + "\n")
        time.sleep(0.05)

    @agent.tool
    def pay(n: int) -> str:
        note(f"pay {n}")
        return "ok"

    @agent.tool
    def look(n: int) -> str:
        note(f"look {n}")
        return "ok"

    return agent


def mapped(url: str, log: str, scheduler: str, attack: Attack) -> Any:
    """The batch, for any process, and its Dask client."""
    client = __import__("distributed").Client(scheduler)
    batch = nb.map(
        agent_of(log, attack.asking),
        range(attack.rows),
        prompt="row {}",
        id="attacked",
        store=nb.SQLStore(url),
        executor=client,
        concurrency=24,
        attended=True,
        show=False,
    )
    return batch, client


async def drive(url: str, log: str, scheduler: str, attack: Attack) -> None:
    """Await the batch in a process that will be killed."""
    batch, _ = mapped(url, log, scheduler, attack)
    await batch
    await asyncio.sleep(600)


ANSWERS = """
import sys, time
import nbagent as nb
inbox = nb.inbox(store=nb.SQLStore(sys.argv[1]))
import asyncio
async def answer():
    while True:
        await inbox.where(tool="pay").where(lambda one: one.interrupt.kind != "lost").approve()
        await asyncio.sleep(0.3)
asyncio.run(answer())
"""


async def attacked(attack: Attack, place: Path, log: Path) -> Outcome:
    """Attack the batch until every row has ended."""
    chance, url, began = random.Random(attack.seed), servers.database(place), time.monotonic()
    cluster = __import__("distributed").LocalCluster(
        n_workers=3,
        threads_per_worker=2,
        processes=True,
        dashboard_address=":0",
        silence_logs=50,
    )
    others: list[subprocess.Popen[bytes]] = []
    restarted: set[str] = set()
    try:
        told = (url, str(log), cluster.scheduler_address, *map(str, attack))
        words = [sys.executable, "-m", __name__ if __name__ != "__main__" else MODULE, "drive"]
        others.append(_started(*words, *told))
        while len(bodies(log)) < min(8, attack.rows):  # noqa: ASYNC110 - another process begins it
            await asyncio.sleep(0.05)
        others[0].kill()  # kill the driver once
        others[0].wait()
        others.append(_started(sys.executable, "-c", ANSWERS, url))
        batch, client = mapped(url, str(log), cluster.scheduler_address, attack)
        kills, step, until = 0, 0, time.monotonic() + 60 + attack.rows
        missing = 0
        while batch.counts["completed"] < attack.rows and time.monotonic() < until:
            await asyncio.sleep(chance.uniform(0.1, 0.4))
            step += 1
            pids = await asyncio.to_thread(client.run, os.getpid, on_error="return")
            alive = [pid for pid in pids.values() if isinstance(pid, int)]
            if alive and kills < attack.kills:
                os.kill(chance.choice(alive), signal.SIGKILL)
                kills += 1
            missing = 0 if alive else missing + 1
            if missing == 40:  # Dask does not start a worker that has the name of a killed one
                cluster.scale(0)
                cluster.adapt(minimum=2, maximum=4)
                missing = 0
            if step == 2:
                await asyncio.to_thread(client.restart, wait_for_workers=False)
            if step == 4:
                cluster.scale(0)
            if step == 6:
                cluster.adapt(minimum=2, maximum=4)
            for one in batch.questions:
                if one.interrupt.kind == "lost":  # a person restarts the call
                    restarted.add(f"{one.interrupt.tool_name} {one.interrupt.input['n']}")
                    await one.answer(nb.Restart())
        await asyncio.wait_for(batch, 60)
        counts = dict(batch.counts)
        client.close()
        return Outcome(bodies(log), restarted, counts, kills, time.monotonic() - began)
    finally:
        for other in others:
            other.kill()
            other.wait()
        cluster.close()


def _started(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stderr=subprocess.DEVNULL)


def bodies(log: Path) -> Counter[str]:
    """The number of starts of each body."""
    return Counter(log.read_text().split("\n")[:-1]) if log.exists() else Counter()


def wrong_with(attack: Attack, outcome: Outcome) -> list[str]:
    """The violated expectations; empty if there are none."""
    expected = {f"{'pay' if n < attack.asking else 'look'} {n}" for n in range(attack.rows)}
    twice = {one for one, n in outcome.began.items() if n > 1}
    found = [f"never began: {sorted(expected - set(outcome.began))[:9]}"]
    found += [f"began twice, and nobody said so: {sorted(twice - outcome.restarted)[:9]}"]
    wrong = [one for one in found if not one.endswith("[]")]
    if outcome.counts["completed"] != attack.rows:
        wrong.append(f"not all have ended: {outcome.counts}")
    return wrong


MODULE = "tests.integration.batch_attack"


def main() -> None:
    """Attack, and print the outcome."""
    if sys.argv[1:2] == ["drive"]:
        url, log, scheduler, *numbers = sys.argv[2:]
        asyncio.run(drive(url, log, scheduler, Attack(*map(int, numbers))))
        return
    attack = Attack(*map(int, sys.argv[1:]))
    with servers.server() as place, tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(attacked(attack, place, Path(folder) / "log"))
    print(attack)
    print(
        f"{sum(outcome.began.values())} bodies of {attack.rows} rows, {outcome.kills} kills, {len(outcome.restarted)} restarted by a "
        f"person, {outcome.seconds:.0f} s, {outcome.counts}"
    )
    print("\n".join(wrong_with(attack, outcome)) or "every body began once, but those")


if __name__ == "__main__":
    main()
