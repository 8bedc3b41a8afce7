"""Reachable goals of a pool that is too small: who gives way, who waits, what the tree gives up."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.event import Evict, Idle, Mix, Prefill, Prepare, Retract, Settle
from specfuzz.core.oracle import Step, reachable


@reachable("retraction-under-pressure", on=(Prepare,))
def retraction_under_pressure(step: Step) -> bool:
    """Prepare retracts a request because memory is short."""
    return bool(step.receipt.retracted)


@reachable("retracted-row-settles", needs=Capability.OVERLAP, on=(Settle, Idle))
def retracted_row_settles(step: Step) -> bool:
    """The result of a verify is processed that a retraction has lost for one of its rows."""
    reqs = step.before.reqs
    for known in step.ledger.settled:
        if known.mode == "DECODE" and any(reqs[rid].is_retracted for rid in known.rids):
            return True
    return False


@reachable("refusal", on=(Prefill, Mix))
def refusal(step: Step) -> bool:
    """A prefill is refused."""
    return step.receipt.refused is not None


@reachable("prefill-under-pressure", on=(Prefill, Mix))
def prefill_under_pressure(step: Step) -> bool:
    """A request is admitted by its first extend while the free pages alone would not hold two of it."""
    pool = step.before.pool
    for rid, _prefix, extend in step.receipt.admitted:
        if step.before.reqs[rid].req_pool_idx is None:
            return len(pool.free_pages) * pool.page_size < 2 * extend
    return False


@reachable("decode-skipped", needs=Capability.OVERLAP, on=(Prepare,))
def decode_skipped(step: Step) -> bool:
    """A prepare skips the round: memory is short, and the queued result is about to give some back."""
    return step.receipt.skipped


@reachable("eviction", needs=Capability.RADIX, on=(Evict, Prefill, Mix, Prepare, Retract))
def eviction(step: Step) -> bool:
    """The tree gives up tokens."""
    return step.receipt.evicted > 0


@reachable("row-fits-nowhere", on=(Prepare,))
def row_fits_nowhere(step: Step) -> bool:
    """The last row that is left is aborted, because memory is short even for it alone."""
    return any(not step.ledger.requests[rid].dropping for rid, _reason, _length in step.receipt.finished)
