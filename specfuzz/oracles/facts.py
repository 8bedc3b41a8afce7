"""What several oracles derive from one step: asked facts, executed lengths, launch history, and page shares.

Everything here is recomputed from events, receipts and raw snapshot facts; what is costly is kept in `step.memo`, keyed by
the identity of the records it was derived from.
"""

from __future__ import annotations

from operator import itemgetter

from specfuzz.core.capability import Capability
from specfuzz.core.legality import Asked, Launched
from specfuzz.core.oracle import Step
from specfuzz.core.snapshot import LaunchView, PoolView, ReqView
from specfuzz.core.verdict import Clash

SPEC = Capability.SPECULATIVE
PLAIN_EXTENDS = ("EXTEND", "MIXED")


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
    return sum(1 for known in step.ledger.in_flight if rid in known.rids)


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
    """Positions [0, x) whose target KV must be on the device: settled, or inside an executed launch of a live request."""
    due = settled_len(step, req)
    for launch in step.after.launches:
        if launch.exit is not None and not launch.settled and req.rid in launch.rids:
            due = max(due, launch.exit.new_seq_lens[launch.rids.index(req.rid)])
    return min(due, len(req.slots))


def exits(step: Step) -> dict[int, LaunchView]:
    """The executed launches seen lately, by number; complete as long as it is asked at every worker entry and exit."""
    memo: dict[int, LaunchView] = step.memo.setdefault("exits", {})
    if step.memo.get("exits-index") != step.index:
        step.memo["exits-index"] = step.index
        for launch in step.after.launches:
            if launch.exit is not None:
                memo[launch.number] = launch
        for number in [n for n in memo if n < step.ledger.launches - 4]:
            del memo[number]
    return memo


def predecessor(step: Step, launch: LaunchView, rid: str) -> tuple[int, int] | None:
    """(frontier, last token) of the forward that carried the request and was unsettled when this one was launched.

    None if nothing of the request was in flight then, or if its exit was not seen.
    """
    if not launch.unsettled_before:
        return None
    earlier = exits(step).get(launch.number - 1)
    if earlier is None or earlier.exit is None or rid not in earlier.rids:
        return None
    row = earlier.rids.index(rid)
    tokens = earlier.exit.next_tokens[row]
    return earlier.exit.new_seq_lens[row], tokens[-1] if tokens else -1


def is_blind(step: Step, launch: LaunchView) -> bool:
    """Whether a forward was unsettled at launch and nobody saw what it decided."""
    return bool(launch.unsettled_before) and launch.number - 1 not in exits(step)


def frontier(step: Step, launch: LaunchView, row: int) -> int:
    """KV-ready length of a speculative row when the launch runs: its predecessor's frontier, else what the host settled."""
    earlier = predecessor(step, launch, launch.rids[row])
    return launch.committed[row] if earlier is None else earlier[0]


def pending_bonus(step: Step, launch: LaunchView, row: int) -> int | None:
    """Token that the row must feed: the last one of its predecessor, else the last one on the host at launch."""
    rid = launch.rids[row]
    earlier = predecessor(step, launch, rid)
    if earlier is not None:
        return earlier[1]
    req = step.before.reqs.get(rid) or step.after.reqs[rid]
    return req.output_ids[-1] if req.output_ids else None


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


def gather(cells: tuple[int, ...], slots: tuple[int, ...]) -> tuple[int, ...]:
    """cells[s] for every slot, at C speed; empty if a slot lies outside of the memory."""
    try:
        if len(slots) == 1:
            return (cells[slots[0]],)
        picked: tuple[int, ...] = itemgetter(*slots)(cells)
        return picked
    except IndexError:
        return ()


def wrong_cell(
    what: str, rid: str, slots: tuple[int, ...], found: tuple[int, ...], wanted: tuple[int, ...], because: str
) -> Clash:
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


class Shares:
    """Who holds which page, recomputed from the free list, the tree walk and the rows.

    free: distinct free pages. tree: pages of cached slots (None if the tree can't be walked). private: pages of positions
    [cache_protected_len, kv_allocated_len) by rid. total: sum of all shares, pages counted as often as they are held.
    clean: every page 1..num_pages is held exactly once, which settles most pool rules at one go.
    """

    __slots__ = ("clean", "free", "private", "total", "tree", "tree_slots")

    def __init__(self, step: Step, pool: PoolView) -> None:
        page_size = pool.page_size
        self.free = set(pool.free_pages)
        self.tree_slots: set[int] | None = None
        self.tree: set[int] | None = None
        if pool.cached is not None:
            self.tree_slots = set()
            for path in pool.cached:
                self.tree_slots.update(path.slots)
            self.tree = pages_of(self.tree_slots, page_size)
        elif Capability.RADIX not in step.capabilities:
            self.tree_slots, self.tree = set(), set()
        self.private = {
            rid: private_pages(step, req, page_size)
            for rid, req in step.after.reqs.items()
            if req.req_pool_idx is not None
        }
        in_tree = len(self.tree) if self.tree is not None else (pool.evictable + pool.protected) // page_size
        self.total = len(pool.free_pages) + in_tree + sum(map(len, self.private.values()))
        self.clean = False
        if self.tree is not None and self.total == pool.num_pages:
            union = self.free.union(self.tree, *self.private.values())
            self.clean = len(union) == pool.num_pages and min(union) == 1 and max(union) == pool.num_pages


def pages_of(slots: set[int] | tuple[int, ...], page_size: int) -> set[int]:
    """The pages in which the slots lie."""
    return set(slots) if page_size == 1 else {slot // page_size for slot in slots}


def private_pages(step: Step, req: ReqView, page_size: int) -> set[int]:
    """Pages of the row outside of the tree's prefix; kept while the request's record is the same."""
    memo: dict[str, tuple[ReqView, set[int]]] = step.memo.setdefault("private-pages", {})
    known = memo.get(req.rid)
    if known is not None and known[0] is req:
        return known[1]
    pages = pages_of(req.slots[req.cache_protected_len :], page_size)
    memo[req.rid] = (req, pages)
    return pages


def shares(step: Step, pool: PoolView) -> Shares:
    """The shares of this pool view, computed once per event."""
    known: tuple[int, Shares] | None = step.memo.get("shares")
    if known is not None and known[0] == step.index:
        return known[1]
    found = Shares(step, pool)
    step.memo["shares"] = (step.index, found)
    return found
