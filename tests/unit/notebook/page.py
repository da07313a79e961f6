"""A page and an engine for tests: a front end that applies patches, and random runs."""

import itertools
import re

from nbagent.core.base.events import (
    CallRequested,
    Interrupted,
    MessageQueued,
    ModelResponded,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.interrupts import Reject, Respond, Restart
from nbagent.core.base.messages import user
from nbagent.core.base.metadata import expected
from nbagent.core.base.model import Discarded, ReasoningDelta, TextDelta, ToolCallDelta
from nbagent.core.tools.call_output import Chunk, Displayed, Printed, Progressed
from nbagent.notebook.render import shorthand
from nbagent.notebook.wire import View


def long(text):
    """The HTML for this shorthand."""

    def written(sign):
        return sign[1] or shorthand.TAGS[ord(sign[0]) - 0x81]

    return re.sub("\x80(.)|[\x81-\x9f]", written, text, flags=re.DOTALL)


class Page:
    """Holds a view and applies patches as ``frontend/reduce.js`` does."""

    def __init__(self):
        self.head = None
        self.items = []

    @property
    def view(self):
        return View(head=self.head, items=self.items)

    def apply(self, ops):
        for op in ops or ():
            getattr(self, f"_{op.op}")(op)

    def _at(self, key):
        found = [i for i, item in enumerate(self.items) if item.key == key]
        assert len(found) <= 1, f"two items have the key {key!r}"
        return found[0] if found else None

    def _head(self, op):
        self.head = op.head

    def _put(self, op):
        at = self._at(op.item.key)
        if at is None:
            self.items.insert(op.index, op.item)
        else:
            self.items[at] = op.item

    def _remove(self, op):
        at = self._at(op.key)
        assert at is not None, f"{op.key!r} is taken away and was never there"
        del self.items[at]

    def _edit(self, key, **update):
        at = self._at(key)
        assert at is not None, f"{key!r} is changed and was never there"
        self.items[at] = self.items[at].model_copy(update=update)

    def _raw(self, op):
        item = self.items[self._at(op.key)]
        field = "raw" if item.type == "text" else "text"
        self._edit(op.key, **{field: getattr(item, field) + op.text})

    def _block(self, op):
        item = self.items[self._at(op.key)]
        was_open = shorthand.open_end(item.tail, item.raw).encode("utf-16-le")
        middle = long(op.html).encode("utf-16-le")
        drawn = was_open[: 2 * op.start] + middle + was_open[len(was_open) - 2 * op.end :]
        places = [0, *(2 * end for end in op.ends), len(drawn)]
        *blocks, tail = [drawn[a:b].decode("utf-16-le") for a, b in itertools.pairwise(places)]
        self._edit(op.key, blocks=[*item.blocks, *blocks], tail=tail, raw=op.raw)

    def _print(self, op):
        self._edit(op.key, printed=self.items[self._at(op.key)].printed + op.text)


class Story:
    """A random run: events that an engine may send, in a possible order."""

    def __init__(self, rng):
        self._rng = rng
        self._at = 0.0
        self._ids = 0
        self.told = []

    def make(self):
        """All events and deltas of one run."""
        rng = self._rng
        self._say(
            RunStarted(at=self._now(), agent="outer", model="m", messages=[user("do")], max_turns=9)
        )
        for _ in range(rng.randint(0, 4)):
            self._turn((), depth=0)
        if rng.random() < 0.2:
            self._budget()
        self._end()
        return self.told

    def _now(self):
        self._at += self._rng.choice([0.0, 0.1, 3.0])
        return self._at

    def _id(self):
        self._ids += 1
        return f"id{self._ids}"

    def _say(self, event):
        self.told.append(event)

    def _maybe_write(self, scope):
        if not scope and self._rng.random() < 0.2:
            self._say(MessageQueued(at=self._now(), text="and hurry", by="code"))

    def _turn(self, scope, depth):
        rng = self._rng
        text = rng.choice(
            ["", "Hello **you**.\n\nNext ", "- a\n- b\n", "x" * 50, "[l]\n\n[l]: https://x.y"]
        )
        reasoning = rng.choice(["", "hm\n", "let me see"])
        calls = [
            CallRequested(id=self._id(), name=rng.choice("fgh"), input={"n": rng.randint(0, 9)})
            for _ in range(rng.choice([0, 1, 1, 3]))
        ]
        if not scope and rng.random() < 0.8:
            if rng.random() < 0.2:
                self._stream("lost " + text, "lost", calls)
                self._say(Discarded("cut"))
            self._stream(text, reasoning, calls)
        self._maybe_write(scope)
        self._say(
            ModelResponded(
                at=self._now(),
                scope=scope,
                text=text,
                reasoning=reasoning,
                calls=tuple(calls),
                input_tokens=3,
                cost=rng.choice([None, 0.5]),
            )
        )
        self._maybe_write(scope)
        self._interleaved([self._call(scope, call, depth) for call in calls])

    def _stream(self, text, reasoning, calls):
        for start in range(0, len(reasoning), 5):
            self._say(ReasoningDelta(reasoning[start : start + 5]))
        step = self._rng.randint(1, 9)
        for start in range(0, len(text), step):
            self._say(TextDelta(text[start : start + step]))
        for index, call in enumerate(calls):
            self._say(ToolCallDelta(index, "", call.id, call.name))
            self._say(ToolCallDelta(index, '{"n": 1}'))

    def _interleaved(self, tales):
        while tales:
            tale = self._rng.choice(tales)
            if next(tale, None) is None:
                tales.remove(tale)

    def _call(self, scope, call, depth):
        rng, input_ = self._rng, call.input
        for _ in range(rng.choice([0, 0, 1, 2])):
            kind = rng.choice(["tool", "question", "approval"])
            interrupt = self._id()
            metadata = rng.choice(
                [None, {"message": "Sure?"}, {"message": "W?", "choices": ["a", "b"]}]
            )
            editable = rng.random() < 0.3
            self._say(
                Interrupted(
                    at=self._now(),
                    scope=scope,
                    id=interrupt,
                    call_id=call.id,
                    tool_name=call.name,
                    kind=kind,
                    expects=expected(kind, metadata, editable=editable),
                    input=input_,
                    metadata=metadata,
                    printed=rng.choice(["", "so far\n"]),
                    editable=editable,
                )
            )
            yield True
            settled = rng.choice(
                [Respond(output="a"), Reject(reason="no"), Restart(), Restart(input={"n": 7})]
            )
            if rng.random() < 0.1:
                return
            self._say(
                Resolved(
                    at=self._now(),
                    scope=scope,
                    id=interrupt,
                    call_id=call.id,
                    resolution=settled,
                    by=rng.choice(["form", "code"]),
                )
            )
            yield True
            if not isinstance(settled, Restart):
                return
            input_ = settled.input or input_
        yield from self._body(scope, call, input_, depth)

    def _body(self, scope, call, input_, depth):
        rng = self._rng
        self._say(
            ToolStarted(
                at=self._now(), scope=scope, call_id=call.id, attempt=1, owner="o", input=input_
            )
        )
        yield True
        printed, displays = "", []
        for _ in range(rng.randint(0, 4)):
            text = rng.choice(["line\n", " 10%\r", "more", "\x1b[31mred\x1b[0m\n"])
            printed += text
            self._say(
                rng.choice([Printed(call.id, "stdout", text, scope), Chunk(call.id, text, scope)])
            )
            if rng.random() < 0.3:
                displays.append({"text/plain": "shown"})
                self._say(Displayed(call.id, displays[-1], None, scope))
            if rng.random() < 0.3:
                self._say(Progressed(call.id, rng.random(), "going", scope))
            yield True
        if depth < 2 and rng.random() < 0.2:
            inner = (*scope, call.id)
            self._say(
                RunStarted(
                    at=self._now(),
                    scope=inner,
                    agent="inner",
                    model="m",
                    messages=[user("x")],
                    max_turns=3,
                )
            )
            self._turn(inner, depth + 1)
            yield True
            self._say(RunCompleted(at=self._now(), scope=inner, text="inner text"))
        if rng.random() < 0.05:
            return
        self._say(
            ToolFinished(
                at=self._now(),
                scope=scope,
                call_id=call.id,
                output=rng.choice(["text", {"a": [1, 2]}, None]),
                error=rng.random() < 0.2,
                printed=printed,
                displays=displays,
                display=rng.choice([None, {"text/html": "<b>rich</b>"}, {"text/plain": "p"}]),
            )
        )

    def _budget(self):
        interrupt = self._id()
        self._say(
            Interrupted(
                at=self._now(),
                id=interrupt,
                call_id="",
                tool_name="",
                kind="budget",
                expects="budget",
                input={},
            )
        )
        if self._rng.random() < 0.7:
            self._say(
                Resolved(
                    at=self._now(),
                    id=interrupt,
                    call_id="",
                    resolution=Respond(output=3),
                    by="form",
                )
            )

    def _end(self):
        match self._rng.choice(["completed", "failed", "cancelled", "open", "retried"]):
            case "completed":
                self._say(RunCompleted(at=self._now(), text=self._rng.choice(["", "The end."])))
            case "failed":
                self._say(RunFailed(at=self._now(), error="ModelError", message="broke"))
            case "cancelled":
                self._say(RunCancelled(at=self._now(), by="form", still_running=("id1",)))
            case "retried":
                self._say(RunFailed(at=self._now(), error="ModelError", message="broke"))
                self._turn((), 0)
