"""Costs of the view: kernel CPU per token and bytes on the wire, without a front end.

Run as ``python -m tests.bench.view``. Prints medians of several rounds; nothing here passes or fails.
"""

import json
import statistics
import time

from nbagent.core.base.events import (
    CallRequested,
    ModelResponded,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.messages import user
from nbagent.core.base.model import TextDelta
from nbagent.notebook.cards.run_card import OF_ONE_RUN as PACE
from nbagent.notebook.render import static
from nbagent.notebook.render.markdown import render
from nbagent.notebook.view.view import SingleRunView

TOKENS = 20_000
ROUNDS = 5
SENTENCE = "The **margin** of the south fell by `4.2` points, since discounts were wrong there. "


def plain_words():
    """Words with a paragraph break now and then."""
    return ["end.\n\n" if i % 120 == 119 else "tok " for i in range(TOKENS)]


def prose():
    """Sentences with some markup, in paragraphs and lists, in pieces of four characters."""
    text, number = "", 0
    while len(text) < TOKENS * 4:
        number += 1
        text += SENTENCE * 5 + "\n\n"
        text += f"## Part {number}\n\n" if number % 5 == 0 else ""
        text += "".join(f"- item {i} of the list\n" for i in range(5)) + "\n"
    return [text[i : i + 4] for i in range(0, TOKENS * 4, 4)]


def code():
    """One long block of code."""
    line = "total = sum(row.margin for row in rows if row.region == 'South')\n"
    text = "```python\n" + line * (TOKENS * 4 // len(line)) + "```\n"
    return [text[i : i + 4] for i in range(0, len(text), 4)]


def examples():
    """Paragraphs and short blocks of code in turns, as an assistant explains a program."""
    lines = "def margin(rows):\n    # of one region\n    return sum(r['m'] for r in rows)\n\n"
    text, size = "", TOKENS * 4
    while len(text) < size:
        text += SENTENCE * 2 + "\n\n```python\n" + lines * 6 + "```\n\n"
    return [text[i : i + 4] for i in range(0, size, 4)]


def table():
    """Tables of words and numbers, with a sentence between."""
    text, size = "", TOKENS * 4
    while len(text) < size:
        text += SENTENCE + "\n\n| region | revenue | margin |\n|:--|--:|--:|\n"
        text += "".join(f"| North {n} | {n * 1234:,} | {n * -77:,} |\n" for n in range(12)) + "\n"
    return [text[i : i + 4] for i in range(0, size, 4)]


def lists():
    """Lists of half sentences."""
    line = "- the price list of the second quarter\n"
    text = (SENTENCE + "\n\n" + line * 9 + "\n") * (TOKENS * 4 // 440)
    return [text[i : i + 4] for i in range(0, len(text), 4)]


def size(ops):
    """Bytes of text and HTML in a patch, without the JSON around them."""
    told = [op.model_dump(mode="json") for op in ops]
    parts = [part for op in told for part in (op.get("text"), op.get("html"), op.get("raw"))]
    texts = [op["item"] for op in told if op["op"] == "put" and op["item"]["type"] == "text"]
    parts += [part for item in texts for part in (*item["blocks"], item["tail"], item["raw"])]
    return sum(len(json.dumps(part, ensure_ascii=False).encode()) - 2 for part in parts if part)


def stream(tokens, a_second):
    """CPU seconds, bytes and number of patches for these tokens at this pace."""
    view, deltas = SingleRunView("r"), [TextDelta(token) for token in tokens]
    view.apply(RunStarted(at=0, agent="a", model="m", messages=[user("go")], max_turns=5))
    view.flush(0.0)
    sent, patches, due = 0, 0, 0.0
    start = time.process_time()
    for number, delta in enumerate(deltas):
        view.apply(delta)
        now = number / a_second
        if now >= due:
            due = now + PACE
            ops = view.flush(now)
            patches += ops is not None
            if ops:
                sent += size(ops)
    view.apply(ModelResponded(at=1, text="".join(tokens)))
    ops = view.flush(number / a_second + 1)
    sent += size(ops)
    return time.process_time() - start, sent, patches


def turns(count):
    """CPU seconds for this many turns of one call each, flushed once a turn; and the view."""
    view = SingleRunView("r")
    view.apply(RunStarted(at=0, agent="a", model="m", messages=[user("go")], max_turns=count))
    start = time.process_time()
    for turn in range(count):
        call = CallRequested(id=f"c{turn}", name="look", input={"n": turn})
        view.apply(ModelResponded(at=turn, text="Looking.", calls=(call,)))
        view.apply(ToolStarted(at=turn, call_id=call.id, attempt=1, owner="o", input=call.input))
        view.apply(ToolFinished(at=turn + 0.5, call_id=call.id, output="ok"))
        view.flush(float(turn))
    return time.process_time() - start, view


def main():
    """Print the table."""
    render("warm **up** $x$\n\n```python\n1\n```\n")
    print(f"{'case':34}{'µs/token':>10}{'bytes/text':>12}{'patches':>9}")
    cases = {
        "plain words": plain_words,
        "prose": prose,
        "code": code,
        "examples": examples,
        "tables": table,
        "lists": lists,
    }
    for name, make in cases.items():
        for pace in (100_000, 100):
            tokens = make() if pace > 1_000 else make()[:2_000]
            rounds = [stream(tokens, pace) for _ in range(ROUNDS)]
            cost = statistics.median(r[0] for r in rounds) / len(tokens) * 1e6
            _, sent, patches = rounds[0]
            label = f"{name}, {pace:,} tokens a second"
            print(f"{label:34}{cost:10.2f}{sent / len(''.join(tokens)):12.2f}{patches:9}")
    for count in (50, 500):
        rounds = [turns(count) for _ in range(ROUNDS)]
        cost = statistics.median(r[0] for r in rounds) / count * 1e6
        print(f"{f'a turn of {count}, flushed':34}{cost:10.0f} µs")
    _, view = turns(50)
    start = time.process_time()
    static.render(view.snapshot(), style=False)
    print(f"{'static HTML of 50 turns':34}{(time.process_time() - start) * 1e3:10.1f} ms")


if __name__ == "__main__":
    main()
