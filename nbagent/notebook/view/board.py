"""The items of a run in order, and the changes that pages have not received yet."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

from nbagent.core.base.events import HostedRan, RowOfCall
from nbagent.core.base.model import HostedCall
from nbagent.core.state.fold import row_digest
from nbagent.notebook.wire import Op, Remove

from .items import FixedItem, FixedNode, HostedNode, StepNode, TextNode, ViewNode
from .tree import AgentNode, CallTree, Turn, walk

Scope: TypeAlias = tuple[str, ...]

MAX_OPS = 200
"""Operations of one flush. The next flush sends further operations, so that no burst blocks the loop."""


class Board:
    """The tree of agents, turns, calls and lines, with the changes since the last flush."""

    def __init__(self) -> None:
        self.root = AgentNode("", ())
        self.agents: dict[Scope, AgentNode] = {(): self.root}
        self.dirty: dict[ViewNode, None] = {}
        """The changed items, in the order of their changes."""
        self.head_dirty = True
        self.plan: tuple[tuple[str, ...], int] = (), 0
        """The last checklist of the run, and how many of its steps are done."""
        self._removed: list[str] = []
        self._fixed = self._fixed_nodes = 0
        """Number of the root's first entries whose places are final, and number of items in these entries."""

    @property
    def changed(self) -> bool:
        """Whether there is something to send, now or a little later."""
        return bool(self.dirty or self._removed or self.head_dirty)

    def show_plan(self, steps: tuple[str, ...], done: int) -> None:
        """Show a plan, of which the first ``done`` steps are done."""
        self.plan = steps, done
        self.head_dirty = True

    def agent(self, scope: Scope) -> AgentNode:
        """The agent at this scope, created if it is new."""
        known = self.agents.get(scope)
        if known is None:
            outer = self.agent(scope[:-1])
            call = outer.open_calls.get(scope[-1])
            key = f"{call.key}/" if call is not None else f"{outer.key}{scope[-1]}/"
            is_flow = call is not None and call.is_row_below  # the call has the flow's name
            names = () if is_flow else (*outer.outer, outer.name)
            known = self.agents[scope] = AgentNode(key, names)
            if call is not None:
                call.inner = known
        return known

    def call(self, scope: Scope, call_id: str) -> CallTree | None:
        """The open call with this id; None if the call has its result, or was never requested."""
        agent = self.agents.get(scope)
        return None if agent is None else agent.open_calls.get(call_id)

    def new_call(self, agent: AgentNode, turn: Turn) -> CallTree:
        """Add a call at the end of the turn."""
        call = CallTree(f"{turn.key}.c{len(turn.calls)}", agent.path)
        turn.calls.append(call)
        return call

    def show_hosted(
        self, agent: AgentNode, turn: Turn, number: int, call: HostedCall | HostedRan
    ) -> None:
        """Show a provider's call in this turn as a row, by its number."""
        row = turn.hosted.setdefault(number, HostedNode(f"{turn.key}.h{number}", agent.path))
        row.show_call(call)
        self.touch(row)

    def body_call(self, agent: AgentNode, outer: CallTree) -> CallTree:
        """Add a call that the body of the call ``outer`` starts, below the earlier items of ``outer``."""
        call = CallTree(f"{agent.key}b.c{agent.started}", agent.path)
        agent.started += 1
        self.add(outer.below, call)
        return call

    def step(self, call: CallTree, name: str, row: RowOfCall | None = None) -> StepNode:
        """The step with this name in a call, or the row of a call that the body runs itself; created if it is new."""
        unique = name if row is None else f"row:{row_digest(name, row)}"
        known = call.steps.get(unique)
        if known is None:
            path = "" if call.is_row_below else " ▸ ".join(filter(None, (call.path, call.name)))
            digest = hashlib.sha256(unique.encode("utf-8", "replace")).hexdigest()[:12]
            input_ = None if row is None else row.input
            known = call.steps[unique] = StepNode(f"{call.key}.s:{digest}", path, name, input_)
            self.add(call.below, known)
        self.touch(known)
        return known

    def put_last(self, call: CallTree, step: StepNode) -> None:
        """Move a finished step to the end of its call, where a replayed journal puts the step."""
        if call.below[-1] is not step:
            self.drop(call.below, step)
            self.add(call.below, step)

    def approved(self, scope: Scope, call_id: str, row: RowOfCall) -> CallTree | None:
        """The row of the approved call that a body runs itself; None if nobody was asked."""
        agent = self.agents.get((*scope, call_id))
        return None if agent is None or row.approved is None else agent.own_calls.get(row.approved)

    def streamed(self, call: CallTree, text: str, start: int) -> None:
        """Draw text that the body of a call wrote, unless it is stored already."""
        if start < call.written:
            return
        if not call.streaming or call.below[-1] is not call.streaming[-1]:
            self._new_text(call)
        call.streaming[-1].stream.pending.append(text)
        self.touch(call.streaming[-1])

    def written(self, call: CallTree, text: str) -> None:
        """Draw stored text of a call's body, instead of the same text as it was streamed, below all stored items."""
        rest = "".join(each.source for each in call.streaming)[len(text) :]
        if not call.streaming:
            self._new_text(call)
        node, *others = call.streaming
        for other in others:
            self.drop(call.below, other)
        call.streaming.clear()
        call.written, call.texts = call.written + len(text), call.texts + 1
        node.close(text)
        running = [step for step in call.steps.values() if step.runs]
        below = [one for one in call.below if one is not node]
        place = len(below)
        while place and below[place - 1] in running:
            place -= 1
        if call.below.index(node) != place:
            self.drop(call.below, node)
            call.below.insert(place, node)
        self.touch(node)
        if rest:  # written while the text was being stored
            self.streamed(call, rest, call.written)

    def _new_text(self, call: CallTree) -> None:
        node = TextNode(f"{call.key}.w{call.texts + len(call.streaming)}")
        call.streaming.append(node)
        self.add(call.below, node)

    def drop_steps(self, call: CallTree) -> None:
        """Remove the steps and rows without a result, and text that is not stored, as their body has ended."""
        for own in [] if call.inner is None else call.inner.own_calls.values():
            if own.state == "running":
                own.started_at, own.state = None, "done"
                self.redraw(own)
        for text in call.streaming:
            self.drop(call.below, text)
        call.streaming.clear()
        for name, step in list(call.steps.items()):
            if step.runs:
                del call.steps[name]
                self.drop(call.below, step)

    def add(self, nodes: list[Turn | ViewNode], node: ViewNode) -> None:
        """Put an item at the end of a list."""
        nodes.append(node)
        self.touch(node)
        self.head_dirty = True

    def add_first(self, node: ViewNode) -> None:
        """Put an item above all others."""
        self.root.entries.insert(0, node)
        self._fixed = self._fixed_nodes = 0
        self.touch(node)

    def drop(self, nodes: list[Turn | ViewNode], node: ViewNode) -> None:
        """Remove an item from its list."""
        nodes.remove(node)
        self._fixed = self._fixed_nodes = 0
        self.forget(node)

    def touch(self, node: ViewNode) -> None:
        """Note that the item changed. An item that is now hidden is removed from pages."""
        if node.hidden:
            self.forget(node)
        else:
            self.dirty[node] = None

    def redraw(self, call: CallTree) -> None:
        """Note that the call changed, and must be sent whole."""
        call.touch()
        self.touch(call)

    def replace(self, node: FixedNode, item: FixedItem) -> None:
        """Put another item in the place of the node's item."""
        node.replace(item)
        self.touch(node)

    def forget(self, node: ViewNode) -> None:
        """Note that the item is removed."""
        self.dirty.pop(node, None)
        if node.sent:
            self._removed.append(node.key)
            node.sent = False

    def ops(self, now: float) -> list[Op]:
        """The operations that bring a page up to date, without the head; see ``MAX_OPS``.

        The oldest changes come first, and new items are in the order of the view.
        """
        ops: list[Op] = [Remove(key=key) for key in self._removed]
        self._removed.clear()
        new = [node for node in self.dirty if not node.sent]
        order = self._order() if new else {}
        if any(node not in order for node in new):
            self._fixed = self._fixed_nodes = 0
            order = self._order()
        fresh = iter(sorted(new, key=lambda n: order.get(n, 0)))
        for known in [node if node.sent else None for node in self.dirty]:
            if len(ops) >= MAX_OPS:
                break
            node = known or next(fresh)
            ops += node.ops(now, order.get(node, 0))
            del self.dirty[node]
            if not node.is_sent:
                self.dirty[node] = None
        return ops

    def _order(self) -> dict[ViewNode, int]:
        """The places of the items that may still move.

        A turn before the last turn gets no further items. Such turns are skipped, so that a long run stays fast.
        """
        entries, last = self.root.entries, self.root.last_turn
        while self._fixed < len(entries) and entries[self._fixed] is not last:
            nodes = list(walk([entries[self._fixed]]))
            if not all(node.sent for node in nodes):
                break
            self._fixed += 1
            self._fixed_nodes += len(nodes)
        rest = walk(entries[self._fixed :])
        return {node: index for index, node in enumerate(rest, self._fixed_nodes)}
