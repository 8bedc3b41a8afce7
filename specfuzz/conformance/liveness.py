"""Clauses about the end: an engine that is given no more work finishes what it has, and then holds nothing."""

from __future__ import annotations

from specfuzz.conformance.clauses import Answer, Evidence, broken, clause, holds, unjudged
from specfuzz.core.event import Idle
from specfuzz.core.snapshot import Snapshot


@clause("draining-ends")
def draining_ends(evidence: Evidence) -> Answer:
    """Without new requests, the loop finishes every request within a bounded number of rounds per token."""
    drained = 0
    for run in evidence.runs:
        if run.stopped is not None:
            continue
        ledger = run.ledger()
        if ledger.live():
            rid = ledger.live()[0]
            asked = ledger.requests[rid]
            return broken(
                f"{run.config.label()}: after {len(run.events)} events {rid} is {asked.standing} with {asked.settled} "
                f"of {asked.submit.max_new} tokens"
            )
        drained += len(ledger.requests)
    return holds(f"{drained} requests finished") if drained else unjudged(_why(evidence))


@clause("idle-frees-everything")
def idle_frees_everything(evidence: Evidence) -> Answer:
    """When every request has left, idle leaves no row, no page outside of the tree, no lock and no pending work."""
    checked = 0
    for run in evidence.runs:
        for moment, ledger in run.steps():
            if not isinstance(moment.event, Idle) or ledger.live() or ledger.prepared is not None:
                continue  # who died in a prepared batch leaves with its launch
            checked += 1
            held = _held(moment.after)
            if held:
                return broken(f"{run.config.label()}, idle and empty: {held}")
    return holds(f"{checked} times idle and empty") if checked else unjudged(_why(evidence))


def _held(state: Snapshot) -> str | None:
    """What is still held, or None."""
    pool = state.pool
    for name in ("waiting", "prepared", "queue"):  # a running batch may keep finished rows until its next filter
        if getattr(state, name):
            return f"`{name}` is {getattr(state, name)}"
    rows = {rid: req.req_pool_idx for rid, req in state.reqs.items() if req.req_pool_idx is not None}
    if rows or sorted(pool.free_rows) != sorted(set(pool.free_rows)) or len(pool.free_rows) != pool.max_reqs:
        return f"rows {rows or ''} are held, {len(pool.free_rows)} of {pool.max_reqs} are free"
    total, free = pool.num_pages * pool.page_size, len(set(pool.free_pages)) * pool.page_size
    if free + pool.evictable != total or len(set(pool.free_pages)) != len(pool.free_pages):
        return f"{free} free and {pool.evictable} evictable tokens make no {total}"
    if pool.protected:
        return f"{pool.protected} tokens of the tree are still protected"
    if state.device is not None and state.device.pending:
        return f"{state.device.pending} device operations are pending"
    return None


def _why(evidence: Evidence) -> str:
    return evidence.stops[0] if evidence.stops else "no run came to its end"


CLAUSES = (draining_ends, idle_frees_everything)
