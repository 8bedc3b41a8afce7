"""What several oracles derive from one step: asked facts, executed lengths, launch history, and page shares.

Everything here is recomputed from events, receipts and raw snapshot facts; what is costly is kept in `step.memo`, keyed
by the identity of the records it was derived from.
"""

from __future__ import annotations

from operator import itemgetter

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Abort, Event, Evict, Idle, Mix, Prefill, Prepare, Retract, Settle, Verify
from specfuzz.core.legality import Asked, Launched
from specfuzz.core.oracle import Step
from specfuzz.core.snapshot import LaunchView, PoolView, ReqView
from specfuzz.core.verdict import Clash

#: Events after which content is judged; what `publish` and `advance` execute is judged with the next of these.
CONTENT_EVENTS: tuple[type[Event], ...] = (Prefill, Mix, Verify, Settle, Evict, Idle)
#: Events that may move the host ledger; the others only ask, or let the device work.
LEDGER_EVENTS: tuple[type[Event], ...] = (Prefill, Mix, Prepare, Verify, Settle, Abort, Retract, Evict, Idle)


class Limits:
    """What the configuration bounds, computed once per run: its properties are derived each time."""

    __slots__ = ("max_accept", "reserve", "row_width", "speculative")

    def __init__(self, config: EngineConfig) -> None:
        self.speculative = config.speculative
        self.row_width = config.row_width
        self.reserve = config.reserve_per_decode
        self.max_accept = config.max_accept


def limits(step: Step) -> Limits:
    """The limits of this run."""
    known: Limits | None = step.memo.get("limits")
    if known is None:
        known = step.memo["limits"] = Limits(step.config)
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


def launched(step: Step, number: int) -> Launched | None:
    """The forward as it was asked for, while it is unsettled or settled by this very event."""
    for known in step.ledger.in_flight:
        if known.number == number:
            return known
    for known in step.ledger.settled:
        if known.number == number:
            return known
    return None


def carrying(step: Step, rid: str) -> int:
    """Launched, unsettled forwards that carry the request, counted from the events."""
    count = 0
    for known in step.ledger.in_flight:
        if rid in known.rids:
            count += 1
    return count


def extend_settled(step: Step, req: ReqView, asked: Asked) -> bool:
    """Whether the result of the request's last extend is processed and was not a middle chunk."""
    if not asked.extend_settled:
        return False
    if Capability.CHUNKED_PREFILL in step.capabilities:
        # A chunked request waits outside of the running batch until its last chunk is merged.
        return req.kv_committed_len >= req.seqlen - 1
    return True


def settled_len(step: Step, req: ReqView) -> int:
    """Positions [0, x) whose target KV was written by settled forwards of this life; 0 while its extend is pending."""
    asked = step.ledger.requests[req.rid]
    if not asked.extend_settled:
        return 0
    return min(req.seqlen - 1, req.kv_committed_len)


def executed_len(step: Step, req: ReqView) -> int:
    """Positions [0, x) whose target KV must be on the device: settled, or inside an executed launch."""
    due = settled_len(step, req)
    for launch in step.after.launches:
        if launch.exit is not None and not launch.settled and req.rid in launch.rids:
            due = max(due, launch.exit.new_seq_lens[launch.rids.index(req.rid)])
    return min(due, len(req.slots))


def view_of(launches: tuple[LaunchView, ...], number: int) -> LaunchView | None:
    """The launch of that number, if it is still listed."""
    for launch in launches:
        if launch.number == number:
            return launch
    return None


def origin(step: Step, launch: LaunchView, row: int) -> tuple[int, int | None] | None:
    """(KV-ready length, pending token) of a row when the launch runs; None where nobody can know.

    Decided by the forward that was unsettled when this one was launched, if it carries the request; else by what the
    host had settled then. A predecessor that is listed no more was settled by an earlier event: the host knows it.
    """
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


def live_rows(step: Step, launch: LaunchView) -> list[tuple[int, ReqView]]:
    """(row number, request) of the rows that are live now; a dead row's content and slots say nothing."""
    found = []
    reqs = step.after.reqs
    for row, rid in enumerate(launch.rids):
        req = reqs[rid]
        if is_live(req):
            found.append((row, req))
    return found


def row_slots(step: Step, req: ReqView) -> tuple[int, ...]:
    """Slots of the request's row before this event moved any of them (a checkpoint may rewrite a prefix)."""
    before = step.before.reqs.get(req.rid)
    if before is not None and before.req_pool_idx == req.req_pool_idx and len(before.slots) >= len(req.slots):
        return before.slots
    return req.slots


def wrong_cell(what: str, rid: str, slots: tuple[int, ...], found: list[int], wanted: list[int], because: str) -> Clash:
    """The clash for the first position at which a memory's cells differ from the true continuation's."""
    if not found:
        return Clash(
            f"slots of {rid} = {slots}, outside of the {what}",
            f"the row of {rid} names slot {max(slots)}",
            f"the {what} has no such slot",
        )
    position = next(p for p, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other)
    return Clash(
        f"{what}[row({rid})[{position}] = slot {slots[position]}] = {found[position]} != {wanted[position]}",
        f"slot {slots[position]} of position {position} holds {found[position]}",
        f"{because}, so it must hold {wanted[position]}",
    )


def read(cells: tuple[int, ...], slots: tuple[int, ...]) -> list[int]:
    """The cells of the slots (one at least), at C speed; empty if a slot lies outside of the memory."""
    try:
        if len(slots) == 1:
            return [cells[slots[0]]]
        return list(itemgetter(*slots)(cells))
    except IndexError:
        return []


def is_judged(step: Step, shelf: str, req: ReqView) -> bool:
    """Whether this rule has judged this very record on this very memory; else remembers that it does so now."""
    memo: dict[str, tuple[object, object]] = step.memo.setdefault(shelf, {})
    known, device = memo.get(req.rid), step.after.device
    if known is not None and known[0] is req and known[1] is device:
        return True
    memo[req.rid] = (req, device)
    return False


class Shares:
    """Who holds which page, recomputed from the free list, the tree walk and the rows.

    tree_slots, tree: cached slots and their pages (None if the tree can't be walked). holders: requests with a row.
    total: sum of all shares, a page counted as often as it is held. clean: every page 1..num_pages is held just once,
    which settles most pool rules at one go (a row is read at the first slot of each of its pages).
    """

    __slots__ = ("_page_size", "_private", "clean", "holders", "total", "tree", "tree_slots")

    def __init__(self, step: Step, pool: PoolView) -> None:
        size = self._page_size = pool.page_size
        self._private: dict[str, set[int]] | None = None
        self.tree_slots, self.tree = tree_of(step, pool)
        self.holders = [req for req in step.after.reqs.values() if req.req_pool_idx is not None]
        pages = list(pool.free_pages)
        if self.tree is not None:
            pages += self.tree
        for req in self.holders:
            if size == 1:
                pages += req.slots[req.cache_protected_len :]
            else:
                pages += [slot // size for slot in req.slots[req.cache_protected_len :: size]]
        self.total = len(pages) + (0 if self.tree is not None else (pool.evictable + pool.protected) // size)
        whole = self.tree is not None and self.total == pool.num_pages
        self.clean = whole and set(pages) == every_page(step, pool)

    @property
    def private(self) -> dict[str, set[int]]:
        """By rid, the pages of positions [cache_protected_len, kv_allocated_len), each slot looked at."""
        if self._private is None:
            self._private = {
                req.rid: pages_of(req.slots[req.cache_protected_len :], self._page_size) for req in self.holders
            }
        return self._private


def every_page(step: Step, pool: PoolView) -> set[int]:
    """The pages that the allocator may hand out: 1..num_pages."""
    known: set[int] | None = step.memo.get("every-page")
    if known is None:
        known = step.memo["every-page"] = set(range(1, pool.num_pages + 1))
    return known


def tree_of(step: Step, pool: PoolView) -> tuple[set[int] | None, set[int] | None]:
    """(cached slots, their pages); kept while the tree's walk is the same."""
    if pool.cached is None:
        return (None, None) if Capability.RADIX in step.capabilities else (set(), set())
    known: tuple[object, set[int], set[int]] | None = step.memo.get("tree")
    if known is not None and known[0] is pool.cached:
        return known[1], known[2]
    slots: set[int] = set()
    for path in pool.cached:
        slots.update(path.slots)
    pages = slots if pool.page_size == 1 else pages_of(slots, pool.page_size)
    step.memo["tree"] = (pool.cached, slots, pages)
    return slots, pages


def pages_of(slots: set[int] | tuple[int, ...], page_size: int) -> set[int]:
    """The pages in which the slots lie."""
    return set(slots) if page_size == 1 else {slot // page_size for slot in slots}


def shares(step: Step, pool: PoolView) -> Shares:
    """The shares of this pool view, computed once per event."""
    known: tuple[int, Shares] | None = step.memo.get("shares")
    if known is not None and known[0] == step.index:
        return known[1]
    found = Shares(step, pool)
    step.memo["shares"] = (step.index, found)
    return found
