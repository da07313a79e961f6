"""Bytes that cards send to a page: a real kernel whose iopub is counted, and a page that greets each card.

Run as ``python -m tests.bench.wire [ROUNDS] [unkept]``. 80,000 characters of text, tables and code arrive in one
burst, and at 1,000 tokens a second: in one answer, and in ten answers with calls between them. All bytes, including the
protocol's own, are counted until the card is still. The page stores the card in its notebook, as JupyterLab does; with
``unkept`` the page does not, and receives static HTML at the end.

Prints the bytes of a page's first and second card. Then prints for each case the bytes per character of text (all, in
patches, stored, and the rest), the number of patches, and the kernel's CPU per token. Numbers are medians of ROUNDS
rounds; nothing here passes or fails.
"""

import json
import statistics
import sys
import threading
import time
from collections import Counter

import zmq

from tests.integration.kernels import front_end

SIZE = 80_000
TOKEN = 4
PACES = {"burst": 100_000, "1,000 tokens a second": 1_000}
ANSWERS = (1, 10)
STILL = 4.0
"""Seconds after which a card that has ended sends no more."""
SENTENCE = "The **margin** of the south fell by `4.2` points, since discounts were wrong there. "
SETUP = """
import asyncio, time
import nbagent as nb
from nbagent.core.base.model import Finished, TextDelta, ToolCallDelta, Usage

class Paced:
    name = "paced"

    def __init__(self, answers, rate):
        self.answers, self.rate = list(answers), rate

    async def stream(self, request):
        await asyncio.sleep(0.5)  # until a page is there
        text, began = self.answers.pop(0), time.perf_counter()
        for number in range(0, len(text), 4):
            wait = number / 4 / self.rate - (time.perf_counter() - began)
            if wait > 0 or number % 400 == 0:
                await asyncio.sleep(wait)
            yield TextDelta(text[number : number + 4])
        left = len(self.answers)
        if left:
            yield ToolCallDelta(0, f'{{"n": {left}}}', f"c{left}", "look")
        yield Finished("tool_calls" if left else "stop", Usage(), self.name)

    async def aclose(self):
        pass

def run(answers, rate):
    agent = nb.Agent(Paced(answers, rate), name="clerk", max_turns=100)

    @agent.tool
    def look(n: int) -> str:
        "Look."
        return f"row {n}"

    return agent.run("Go")
"""


def mixture(size):
    """Text, tables and code in turns."""
    text, number = "", 0
    lines = "def margin(rows):\n    # of region {n}\n    return sum(r['m'] for r in rows)\n\n"
    while len(text) < size:
        number += 1
        text += f"## Part {number}\n\n" + SENTENCE * 4 + "\n\n"
        text += "".join(f"- item {i} of the list\n" for i in range(5)) + "\n"
        rows = (f"| North {n} | {n * number * 1234:,} | {n * -77:,} |\n" for n in range(12))
        text += "| region | revenue | margin |\n|:--|--:|--:|\n" + "".join(rows) + "\n"
        text += "```python\n" + "".join(lines.format(n=n * number) for n in range(5)) + "```\n\n"
    return text[:size]


class Tap(threading.Thread):
    """Counts every byte on iopub by the kind of message."""

    def __init__(self, connection):
        super().__init__(daemon=True)
        self._socket = zmq.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.subscribe(b"")
        self._socket.connect(f"tcp://{connection['ip']}:{connection['iopub_port']}")
        self.cards, self.ended = [], False
        self.sizes, self.counts = Counter(), Counter()

    def clear(self):
        """Reset the counts."""
        self.cards, self.ended = [], False
        self.sizes, self.counts = Counter(), Counter()

    def run(self):
        """Count messages."""
        while True:
            frames = self._socket.recv_multipart()
            at = frames.index(b"<IDS|MSG>")
            kind, content = json.loads(frames[at + 2])["msg_type"], json.loads(frames[at + 5])
            data = content.get("data", {})
            said = data.get("content", {}) if kind == "comm_msg" else {}
            kind = said.get("type", kind)
            if kind == "comm_open" and "snapshot" in data["state"]:
                self.cards.append(content["comm_id"])
            self.ended = self.ended or any(
                op["op"] == "head" and op["head"]["status"] == "completed"
                for op in said.get("ops", ())
            )
            self.sizes[kind] += sum(map(len, frames))
            self.counts[kind] += 1


def show(kernel, tap, code, hello):
    """Run the cell, greet its card, and wait until the card is still."""
    tap.clear()
    kernel.must_run(code)
    while not tap.cards:
        time.sleep(0.01)
    kernel.answer(tap.cards[0], hello)
    while not tap.ended:
        time.sleep(0.1)
    time.sleep(STILL)
    return sum(tap.sizes.values()), tap.sizes, tap.counts


def main():
    """Print the table."""
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 1)
    hello = {"type": "hello", **({} if "unkept" in sys.argv else {"keeps": True})}
    rows = {}
    for _ in range(rounds):
        with front_end(subshell=True) as kernel:
            tap = Tap(kernel._manager.get_connection_info())
            tap.start()
            kernel.must_run(SETUP)
            for name in ("first card", "second card"):
                all_, sizes, _ = show(kernel, tap, "one = run(['Done.'], 100_000)\none", hello)
                rows.setdefault(name, []).append((all_, sizes["comm_open"]))
            kernel.must_run(f"text = {mixture(SIZE)!r}")
            for count in ANSWERS:
                for pace, rate in PACES.items():
                    size = SIZE // count
                    each = f"[text[at : at + {size}] for at in range(0, {SIZE}, {size})]"
                    code = f"begun = time.process_time(); one = run({each}, {rate})\none"
                    all_, sizes, counts = show(kernel, tap, code, hello)
                    cpu = float(kernel.must_run("print(time.process_time() - begun)"))
                    kept = sizes["keep"] + sizes["update_display_data"]
                    times = [n / SIZE for n in (all_, sizes["patch"], kept)]
                    row = (*times, counts["patch"], cpu / SIZE * TOKEN * 1e6)
                    rows.setdefault(f"{count} answers, {pace}", []).append(row)
    for name in ("first card", "second card"):
        middle = [statistics.median(column) for column in zip(*rows.pop(name), strict=True)]
        print(f"{name}: {middle[0]:,.0f} bytes, its widgets {middle[1]:,.0f}")
    print(
        f"{'':36}{'bytes/text':>11}{'patches':>9}{'kept':>7}{'rest':>7}{'number':>8}{'µs/token':>10}"
    )
    for name, found in rows.items():
        every, patches, kept, number, cpu = map(statistics.median, zip(*found, strict=True))
        rest = every - patches - kept
        print(f"{name:36}{every:11.2f}{patches:9.2f}{kept:7.2f}{rest:7.2f}{number:8.0f}{cpu:10.2f}")


if __name__ == "__main__":
    main()
