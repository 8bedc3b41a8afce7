"""Giving rows back under pressure: who goes first, how a row is released, and when the last one is aborted.

Source: sglang 0.5.23 managers/schedule_batch.py `retract_decode`, `release_req` (behaviour).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specfuzz.reference.allocation import Pools
from specfuzz.reference.req import Req

#: Decode steps of room that a retraction makes for each survivor, in tokens. Source: SGLANG_RETRACT_DECODE_STEPS.
RETRACT_DECODE_STEPS = 20


@dataclass(slots=True)
class Retraction:
    """Requests to put back into the queue, in order; one that fits nowhere and is aborted; the survivors' new order."""

    retracted: list[Req] = field(default_factory=list)
    aborted: list[Req] = field(default_factory=list)
    kept: list[Req] = field(default_factory=list)


class Retractor:
    """Takes rows away from running requests."""

    def __init__(self, pools: Pools) -> None:
        """pools: where the rows come from."""
        self.pools = pools

    def release_req(self, req: Req, survivors: int) -> None:
        """Release a row without caching it (the space is needed now), make room for the rest, reset the request."""
        self.pools.release_kv_cache(req, checkpoint=False)
        self.pools.tree_cache.evict_to_free_tokens(survivors * RETRACT_DECODE_STEPS)
        req.reset_for_retract()

    def retract_decode(self, reqs: list[Req]) -> Retraction:
        """Retract until the rest fits: fewest outputs first, then the longest prompt; at least one row is kept."""
        outcome = Retraction()
        keep = sorted(reqs, key=lambda req: (len(req.output_ids), -len(req.origin_input_ids)), reverse=True)
        first = True
        while len(keep) > 1 and (first or not self.pools.check_decode_mem(keep)):
            first = False
            victim = keep.pop()
            self.release_req(victim, len(keep))
            outcome.retracted.append(victim)
        if len(keep) == 1 and not self.pools.check_decode_mem(keep):
            last = keep.pop()
            last.to_finish = "abort"
            self.release_req(last, 0)
            outcome.aborted.append(last)
        outcome.kept = keep
        return outcome
