"""Rules of the row table: rows are conserved, and the window that a forward writes is what its row names there."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import LaunchView, PoolView, ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import CONTENT_EVENTS, forward, limits, row_slots
from specfuzz.oracles.shares import every_row, shares

HOLDS = Verdict.HOLDS


@oracle(
    "rows-are-conserved",
    formula="free rows and held rows together are 1..max_reqs, each once",
    clock=Clock.HOST,
    owner=Owner.REQ_TO_TOKEN_POOL,
    scope=Scope.POOL,
    source="sglang 0.5.23 mem_cache/memory_pool ReqToTokenPool.alloc, free; mini-sglang #111",
    twin="row-reused",
)
def rows_are_conserved(step: Step, pool: PoolView) -> Finding:
    """A row is free or belongs to one request; row 0 is padding and belongs to nobody."""
    held = [req.req_pool_idx for req in shares(step, pool).holders]
    if len(pool.free_rows) + len(held) == pool.max_reqs and not every_row(step, pool).difference(pool.free_rows, held):
        return HOLDS
    return Clash(
        f"free {pool.free_rows} + held {tuple(held)} == 1..{pool.max_reqs}",
        f"the free list names the rows {pool.free_rows}",
        f"requests hold the rows {tuple(held)} of {pool.max_reqs}",
    )


@oracle(
    "window-follows-the-row",
    formula=(
        "worker entry: slots written == slots[start:end), start = entry seq_lens "
        "(speculative DECODE) or seq_lens - width"
    ),
    clock=Clock.DEVICE,
    owner=Owner.REQ_TO_TOKEN_POOL,
    scope=Scope.BATCH,
    point=Point.WORKER_ENTRY,
    needs=Capability.LAUNCH_VIEW,
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch.out_cache_loc; sglang #33547",
    twin="launch",
)
def window_follows_the_row(step: Step, launch: LaunchView) -> Finding:
    """A forward writes where the rows of its own requests say, from its own frontier on."""
    entry = launch.entry
    if entry is None:
        return Verdict.UNKNOWN
    ahead = limits(step).speculative and launch.mode == "DECODE"
    finding: Finding = None
    known = forward(step, launch)
    for row, req in known.rows:
        window, start, length = entry.window[row], entry.prefix_lens[row], entry.seq_lens[row]
        slots = row_slots(step, req)
        place = length if ahead else length - len(window)
        # The row names the tree's own slots where the tree has taken a middle chunk over before it has run.
        taken = max(0, req.cache_protected_len - start) if req.rid in known.middle else 0
        if start != place or window[taken:] != slots[start + taken : start + len(window)] or not window:
            return Clash(
                f"window({req.rid}) = {window} at {start} == slots[{place}:{place + len(window)}) = "
                f"{slots[max(place, 0) : max(place, 0) + len(window)]}",
                f"forward {launch.number} ({launch.mode}) writes the slots {window} "
                f"for {req.rid} from position {start} on",
                f"its length there is {length} and its row has {len(slots)} slots",
                rid=req.rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "window-inside-the-reserve",
    formula="DECODE entry: entry seq_lens + draft_token_num <= kv_allocated_len at launch",
    clock=Clock.DEVICE,
    owner=Owner.SCHEDULER,
    scope=Scope.BATCH,
    point=Point.WORKER_ENTRY,
    needs=Capability.LAUNCH_VIEW | Capability.SPECULATIVE,
    source="sglang 0.5.23 mem_cache/allocation_sizing page_aligned_decode_alloc_lens; TensorRT-LLM #16280",
    twin="device-leads-host",
)
def window_inside_the_reserve(step: Step, launch: LaunchView) -> Finding:
    """The verify window ends inside of what prepare has reserved, wherever the device stands."""
    entry = launch.entry
    if launch.mode != "DECODE":
        return None
    if entry is None:
        return Verdict.UNKNOWN
    width = step.config.draft_token_num
    finding: Finding = None
    for row, req in forward(step, launch).rows:
        end = entry.seq_lens[row] + width
        if end > launch.allocated[row]:
            return Clash(
                f"{entry.seq_lens[row]} + {width} = {end} <= {launch.allocated[row]}",
                f"forward {launch.number} verifies {width} tokens of {req.rid} from {entry.seq_lens[row]} on",
                f"its row is backed up to {launch.allocated[row]} (host committed {launch.committed[row]})",
                rid=req.rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "writes-start-past-the-tree",
    formula="worker entry: no slot of the window lies on [0, cache_protected_len) of its row or in page 0",
    clock=Clock.DEVICE,
    owner=Owner.REQ_TO_TOKEN_POOL,
    scope=Scope.BATCH,
    point=Point.WORKER_ENTRY,
    needs=Capability.LAUNCH_VIEW,
    source="sglang 0.5.23 mem_cache/radix_cache RadixCache.checkpoint; sglang #30093",
    twin="launch",
)
def writes_start_past_the_tree(step: Step, launch: LaunchView) -> Finding:
    """A live row writes neither into slots that it shares with the tree nor into the padding page."""
    entry = launch.entry
    if entry is None:
        return Verdict.UNKNOWN
    page_size = step.config.page_size
    finding: Finding = None
    known = forward(step, launch)
    for row, req in known.rows:
        before = step.before.reqs.get(req.rid)
        held = req if before is None or before.req_pool_idx is None else before
        start, window = entry.prefix_lens[row], entry.window[row]
        # The tree takes a chunk over when the next step is scheduled, which may be before the chunk has run.
        taken = start < held.cache_protected_len and req.rid not in known.middle
        if taken or (window and min(window) < page_size):
            return Clash(
                f"{start} >= {held.cache_protected_len} and min({window}) >= {page_size}",
                f"forward {launch.number} writes {req.rid} from position {start} on, into the slots {window}",
                f"[0, {held.cache_protected_len}) belongs to the tree and page 0 to nobody",
                rid=req.rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "device-rows-are-host-rows",
    formula="no device work pending: req_to_token[row][0:kv_allocated_len) on the device == the host's slots",
    clock=Clock.DEVICE,
    owner=Owner.REQ_TO_TOKEN_POOL,
    scope=Scope.REQUEST,
    needs=Capability.DEVICE_VIEW,
    on=CONTENT_EVENTS,
    source="sglang 0.5.23 mem_cache/allocation alloc_for_spec_decode; sglang #33579",
    twin="verify-settles",
)
def device_rows_are_host_rows(step: Step, req: ReqView) -> Finding:
    """The row that a forward reads is the row that the scheduler believes in."""
    device = step.after.device
    if device is None:
        return Verdict.UNKNOWN
    if device.pending or not req.slots or req.req_pool_idx is None or req.rid not in device.rows:
        return None
    row, memo = device.rows[req.rid], step.memo.setdefault("row-judged", {})
    known = memo.get(req.rid)
    if known is not None and known[0] is req.slots and known[1] is row:
        return None
    memo[req.rid] = (req.slots, row)
    if row == req.slots:
        return HOLDS
    first = next((p for p, (one, other) in enumerate(zip(row, req.slots, strict=False)) if one != other), len(row))
    there = row[first] if first < len(row) else None
    here = req.slots[first] if first < len(req.slots) else None
    return Clash(
        f"row({req.rid})[{first}] = {there} == {here}",
        f"row {req.req_pool_idx} on the device names slot {there} for position {first}",
        f"the host has given position {first} slot {here}",
    )
