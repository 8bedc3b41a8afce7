"""The phase of one request, derived from the ledger of events and the launches of a snapshot; engine-neutral."""

from __future__ import annotations

from specfuzz.core.asked import Standing
from specfuzz.core.clock import Phase
from specfuzz.core.legality import Ledger
from specfuzz.core.snapshot import Snapshot


def phase_of(rid: str, ledger: Ledger, snapshot: Snapshot) -> Phase:
    """Where `rid` stands after the event that the ledger recorded last."""
    asked = ledger.requests[rid]
    carrying = [launched for launched in ledger.in_flight if rid in launched.rids]
    if asked.standing is Standing.CHUNKED:
        return Phase.EXTENDING
    if asked.standing is not Standing.RUNNING:
        if carrying:
            return Phase.DEAD_IN_FLIGHT
        if asked.standing is Standing.FINISHED:
            return Phase.FINISHED
        return Phase.RETRACTED if asked.was_retracted else Phase.WAITING
    if not asked.extend_settled:
        return Phase.EXTENDING
    if ledger.prepared is not None and rid in ledger.prepared:
        return Phase.PREPARED
    if not carrying:
        return Phase.STEADY
    newest = carrying[-1]
    if newest.mode == "MIXED":
        return Phase.MIXED_TAIL
    for launch in snapshot.launches:
        if launch.number == newest.number:
            return Phase.PUBLISHED if launch.published else Phase.IN_FLIGHT
    return Phase.IN_FLIGHT
