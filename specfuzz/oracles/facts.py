"""What several oracles derive from one step: asked facts, executed lengths, launch history, and cells to compare.

Everything here is recomputed from events, receipts and raw snapshot facts; what is costly is kept in `step.memo`, keyed
by the identity of the records it was derived from.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from specfuzz.core.asked import Launched
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import (
    Abort,
    Advance,
    Event,
    Evict,
    Idle,
    Mix,
    Prefill,
    Prepare,
    Publish,
    Retract,
    Settle,
    Verify,
)
from specfuzz.core.language import STOP_TOKEN
from specfuzz.core.oracle import Step
from specfuzz.core.snapshot import BatchView, LaunchView, ReqView
from specfuzz.core.verdict import Clash

#: Events after which content is judged; what `publish` and `advance` execute is judged with the next of these.
CONTENT_EVENTS: tuple[type[Event], ...] = (Prefill, Mix, Verify, Settle, Evict, Idle)
#: Events that may move the host ledger; the others only ask, or let the device work.
LEDGER_EVENTS: tuple[type[Event], ...] = (Prefill, Mix, Prepare, Verify, Settle, Abort, Retract, Evict, Idle)
#: Events in which the device may have worked: all but those that only ask.
DEVICE_EVENTS: tuple[type[Event], ...] = (*LEDGER_EVENTS, Publish, Advance)


class Limits:
    """What configuration and capabilities bound, worked out once per run: properties and flags cost too much."""

    __slots__ = ("max_accept", "page_size", "radix", "reserve", "row_width", "speculative")

    def __init__(self, config: EngineConfig, capabilities: Capability) -> None:
        self.radix = Capability.RADIX in capabilities
        self.page_size = config.page_size
        self.speculative = config.speculative
        self.row_width = config.row_width
        self.reserve = config.reserve_per_decode
        self.max_accept = config.max_accept


def limits(step: Step) -> Limits:
    """The limits of this run."""
    known: Limits | None = step.memo.get("limits")
    if known is None:
        known = step.memo["limits"] = Limits(step.config, step.capabilities)
    return known


def is_live(req: ReqView) -> bool:
    """Whether the request holds a row and is neither finished nor retracted."""
    return req.req_pool_idx is not None and req.finished_reason is None and not req.is_retracted


def is_dead(req: ReqView) -> bool:
    """Whether a result that still carries the request must change nothing on it."""
    return req.finished_reason is not None or req.is_retracted


def same_residence(before: ReqView | None, after: ReqView) -> bool:
    """Whether the request held its row before the event and holds it still."""
    return (
        before is not None
        and before.req_pool_idx is not None
        and before.req_pool_idx == after.req_pool_idx
        and before.retraction_count == after.retraction_count
    )


def settled_rows(step: Step) -> dict[str, list[tuple[Launched, int]]]:
    """By rid, the forwards that this event has settled and the request's row in each."""
    known: tuple[int, dict[str, list[tuple[Launched, int]]]] | None = step.memo.get("settled-rows")
    if known is not None and known[0] == step.index:
        return known[1]
    found: dict[str, list[tuple[Launched, int]]] = {}
    for launch in step.ledger.settled:
        for row, rid in enumerate(launch.rids):
            if rid not in found:
                found[rid] = [(launch, row)]
            elif found[rid][-1][0] is not launch:  # a request that stands in a batch twice counts by its first row
                found[rid].append((launch, row))
    step.memo["settled-rows"] = (step.index, found)
    return found


def retained(step: Step, rid: str, run: tuple[int, ...]) -> tuple[int, ...]:
    """What a settled run leaves on the request: all of it, unless its grammar ends inside."""
    if step.ledger.requests[rid].submit.grammar and STOP_TOKEN in run:
        return run[: run.index(STOP_TOKEN) + 1]
    return run


def lived_rows(step: Step, req: ReqView, grown: int) -> list[tuple[Launched, int]] | None:
    """Of `settled_rows`, those that the request has lived through: what comes behind its end changes nothing on it.

    grown: output tokens that this event has appended. None where nobody can know which of several results ended it.
    """
    rows = settled_rows(step)[req.rid]
    if req.finished_reason is None or len(rows) == 1:
        return rows
    for place, (known, row) in enumerate(rows, 1):
        launch = view_of(step.after.launches, known.number)
        if launch is None or launch.exit is None:
            return None
        if req.rid not in known.middle:
            grown -= len(retained(step, req.rid, launch.exit.next_tokens[row]))
            if grown <= 0:
                return rows[:place]
    return rows


def carrying(step: Step, rid: str) -> int:
    """Launched, unsettled forwards that carry the request, counted from the events."""
    count = 0
    for known in step.ledger.in_flight:
        if rid in known.rids:
            count += 1
    return count


def sampling(step: Step, rid: str) -> int:
    """Launched, unsettled forwards that will emit a token of the request: all that carry it but its middle chunks."""
    count = 0
    for known in step.ledger.in_flight:
        if rid in known.rids and rid not in known.middle:
            count += 1
    return count


def settled_len(step: Step, req: ReqView) -> int:
    """Positions [0, x) whose target KV was written by settled forwards of this life; 0 while its extend is pending."""
    if not step.ledger.requests[req.rid].extend_settled:
        return 0
    return min(req.prompt_len + len(req.output_ids) - 1, req.kv_committed_len)


def _executed(step: Step) -> dict[str, int]:
    known: tuple[int, dict[str, int]] | None = step.memo.get("executed")
    if known is not None and known[0] == step.index:
        return known[1]
    found: dict[str, int] = {}
    for launch in step.after.launches:
        if launch.exit is not None and not launch.settled:
            for rid, length in zip(launch.rids, launch.exit.new_seq_lens, strict=False):
                if length > found.get(rid, 0):
                    found[rid] = length
    step.memo["executed"] = (step.index, found)
    return found


def executed_len(step: Step, req: ReqView) -> int:
    """Positions [0, x) whose target KV must be on the device: settled, or inside an executed launch."""
    return min(max(settled_len(step, req), _executed(step).get(req.rid, 0)), len(req.slots))


def view_of(launches: tuple[LaunchView, ...], number: int) -> LaunchView | None:
    """The launch of that number, if it is still listed."""
    for launch in launches:
        if launch.number == number:
            return launch
    return None


class Forward:
    """One launch as the rules of one step see it, worked out once for all of them.

    asked: the forward as it was asked for, while it is unsettled or settled by this very event. extended: the requests
    that it extends; middle: those of them whose prompt goes on behind it. rows: (row number, request) of the rows that
    are live now; a dead row's content and slots say nothing.
    """

    __slots__ = ("_origins", "asked", "extended", "index", "launch", "middle", "rows")

    def __init__(self, step: Step, launch: LaunchView) -> None:
        self.index, self.launch = step.index, launch
        self.asked = _launched(step, launch.number)
        self.extended, self.middle = ((), ()) if self.asked is None else (self.asked.extended, self.asked.middle)
        reqs = step.after.reqs
        self.rows: list[tuple[int, ReqView]] = []
        for row, rid in enumerate(launch.rids):
            req = reqs[rid]
            if is_live(req):
                self.rows.append((row, req))
        self._origins: dict[int, tuple[int, int | None] | None] = {}

    def origin(self, step: Step, row: int) -> tuple[int, int | None] | None:
        """(KV-ready length, pending token) of a row when the launch runs; None where nobody can know.

        Decided by the forward that was unsettled when this one was launched, if it carries the request; else by what
        the host had settled then. A predecessor that is listed no more was settled by an earlier event: the host knows
        it.
        """
        if row not in self._origins:
            self._origins[row] = _origin(step, self.launch, row)
        return self._origins[row]


def forward(step: Step, launch: LaunchView) -> Forward:
    """What the rules know about this launch in this step."""
    known: Forward | None = step.memo.get("forward")
    if known is None or known.launch is not launch or known.index != step.index:
        known = step.memo["forward"] = Forward(step, launch)
    return known


def _launched(step: Step, number: int) -> Launched | None:
    for known in step.ledger.in_flight:
        if known.number == number:
            return known
    for known in step.ledger.settled:
        if known.number == number:
            return known
    return None


def _origin(step: Step, launch: LaunchView, row: int) -> tuple[int, int | None] | None:
    rid = launch.rids[row]
    before = step.before.reqs.get(rid)
    settled = before if before is not None and before.req_pool_idx is not None else step.after.reqs[rid]
    token = settled.output_ids[-1] if settled.output_ids else None
    if not launch.unsettled_before:
        return launch.committed[row], token
    earlier = view_of(step.after.launches, launch.number - 1)
    if earlier is None:
        return settled.kv_committed_len, token
    if rid not in earlier.rids:
        return launch.committed[row], token
    if earlier.exit is None:
        return None
    place = earlier.rids.index(rid)
    tokens = earlier.exit.next_tokens[place]
    return earlier.exit.new_seq_lens[place], tokens[-1] if tokens else None


def changed_batches(step: Step) -> list[BatchView]:
    """The batches that have rows and whose view is another object than before."""
    known: tuple[int, list[BatchView]] | None = step.memo.get("batches")
    if known is not None and known[0] == step.index:
        return known[1]
    found: list[BatchView] = []
    old = step.before.batches
    for batch in step.after.batches:
        if batch.rids:
            for other in old:
                if other is batch:
                    break
            else:
                found.append(batch)
    step.memo["batches"] = (step.index, found)
    return found


def row_slots(step: Step, req: ReqView) -> tuple[int, ...]:
    """Slots of the request's row before this event moved any of them (a checkpoint may rewrite a prefix)."""
    before = step.before.reqs.get(req.rid)
    if before is not None and before.req_pool_idx == req.req_pool_idx and len(before.slots) >= len(req.slots):
        return before.slots
    return req.slots


class Judged:
    """The last look of one rule at one request's cells: what it saw, with what it needs to look at them again."""

    __slots__ = ("_read", "due", "first", "req", "second", "slots")

    def __init__(self) -> None:
        self.req: ReqView | None = None
        self.due = -1
        self.first: object = None
        self.second: object = None
        self.slots: tuple[int, ...] = ()
        self._read = reader(())

    def is_same(self, req: ReqView, due: int, first: object, second: object = None) -> bool:
        """Whether nothing of it is new: the very record, memory and frontier; else remembers them."""
        if self.req is req and self.due == due and self.first is first and self.second is second:
            return True
        if self.due != due or self.req is None or self.req.slots is not req.slots:
            self.slots = req.slots[:due]
            self._read = reader(self.slots)
        self.req, self.due, self.first, self.second = req, due, first, second
        return False

    def read(self, cells: tuple[int, ...]) -> list[int]:
        """The cells of slots[0:due); empty if a slot lies outside of the memory."""
        try:
            return list(self._read(cells))
        except IndexError:
            return []


def judged(step: Step, shelf: str, rid: str) -> Judged:
    """The last look of that rule at that request."""
    memo: dict[str, Judged] | None = step.memo.get(shelf)
    if memo is None:
        memo = step.memo[shelf] = {}
    known = memo.get(rid)
    if known is None:
        known = memo[rid] = Judged()
    return known


def reader(slots: tuple[int, ...]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Reads the cells of these slots at C speed; raises IndexError if a slot lies outside of the memory."""
    if len(slots) > 1:
        return itemgetter(*slots)
    return lambda cells: tuple([cells[slot] for slot in slots])


def wrong_cell(what: str, rid: str, slots: tuple[int, ...], found: list[int], wanted: list[int], because: str) -> Clash:
    """The clash for the first position at which a memory's cells differ from the true continuation's."""
    if not found:
        return Clash(
            f"slots of {rid} = {slots}, outside of the {what}",
            f"the row of {rid} names slot {max(slots)}",
            f"the {what} has no such slot",
            rid=rid,
        )
    position = next(p for p, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other)
    return Clash(
        f"{what}[row({rid})[{position}] = slot {slots[position]}] = {found[position]} != {wanted[position]}",
        f"slot {slots[position]} of position {position} holds {found[position]}",
        f"{because}, so it must hold {wanted[position]}",
        rid=rid,
    )
