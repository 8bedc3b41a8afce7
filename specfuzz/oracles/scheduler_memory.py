"""Rules for what a scheduler does when KV is short: who is let in or refused, who waits a step, who gives way."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Mix, Prefill, Prepare
from specfuzz.core.lemmas import ceil_align
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import limits, sampling
from specfuzz.oracles.shares import pages_of

HOLDS = Verdict.HOLDS


def pages_of_a_round(step: Step, req: ReqView) -> int:
    """Pages that the next decode of the request takes from the free list."""
    known = limits(step)
    have = ceil_align(req.kv_allocated_len, known.page_size)
    want = max(have, ceil_align(req.kv_committed_len + known.reserve, known.page_size))
    return (want - have) // known.page_size


def _room_without(step: Step, gone: set[str]) -> int:
    """Pages that were free or evictable before the event, had the requests in `gone` been released already."""
    before, size = step.before, step.config.page_size
    locked: set[int] = set()
    private = 0
    for rid, req in before.reqs.items():
        protected = req.slots[: req.cache_protected_len]
        if rid in gone:
            private += len(pages_of(req.slots[req.cache_protected_len :], size))
        else:
            locked |= pages_of(protected, size)
    cached = {slot // size for path in before.pool.cached or () for slot in path.slots}
    return len(before.pool.free_pages) + len(cached - locked) + private


def _left(step: Step) -> tuple[list[str], set[str]]:
    """Who had to give way in this prepare, in order, and the chunked request whose abort was executed before."""
    ended = [rid for rid, _reason, _length in step.receipt.finished]
    dropping = {rid for rid in ended if step.ledger.requests[rid].dropping}
    return [*step.receipt.retracted, *(rid for rid in ended if rid not in dropping)], dropping


@oracle(
    "retraction-needs-pressure",
    formula=(
        "prepare, each row that gives way: pages that the round of it and of the rest needs > free pages + unlocked "
        "cached pages + those of the rows before it; mix never retracts"
    ),
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    on=(Prepare, Mix),
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch.retract_decode; sglang #14942",
    twin="retraction-under-pressure",
)
def retraction_needs_pressure(step: Step) -> Finding:
    """Nobody loses its KV while the round fits without that, be it the first one to go or the last."""
    if type(step.event) is Mix:
        if not step.receipt.retracted:
            return None
        return Clash(
            f"retracted {step.receipt.retracted} == ()",
            f"a mixed step retracted {step.receipt.retracted}",
            "running rows for which there is no room sit a mixed step out",
        )
    order, released = _left(step)
    for place, rid in enumerate(order):
        rest = (*step.receipt.rows, *order[place:])
        needed = sum(pages_of_a_round(step, step.before.reqs[one]) for one in rest)
        room = _room_without(step, released)
        if needed <= room:
            return Clash(
                f"{needed} > {room}",
                f"prepare took the KV of {rid} away, number {place + 1} of {', '.join(order)}",
                f"the round of {', '.join(rest)} needed {needed} pages, and {room} were free or unlocked by then",
                rid=rid,
            )
        released.add(rid)
    return HOLDS if order else None


@oracle(
    "retraction-takes-the-youngest",
    formula=(
        "prepare: (outputs, -prompt_len) of each row that gives way <= that of every row behind it and of every row "
        "that stays"
    ),
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    on=(Prepare,),
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch._get_decode_retraction_order",
    twin="retraction-under-pressure",
)
def retraction_takes_the_youngest(step: Step) -> Finding:
    """Who has generated most keeps its KV: else two requests may take turns for ever and neither gets to its end."""
    if not step.receipt.retracted:
        return None
    order, _released = _left(step)
    stay = [*order, *step.receipt.rows]
    for place, rid in enumerate(order):
        for other in stay[place + 1 :]:
            if _seniority(step, rid) > _seniority(step, other):
                return Clash(
                    f"{_seniority(step, rid)} <= {_seniority(step, other)}",
                    f"{rid} gave way with (outputs, -prompt_len) = {_seniority(step, rid)}",
                    f"{other} outlasted it with {_seniority(step, other)}",
                    rid=rid,
                )
    return HOLDS


def _seniority(step: Step, rid: str) -> tuple[int, int]:
    req = step.before.reqs[rid]
    return len(req.output_ids), -req.prompt_len


@oracle(
    "retraction-leaves-a-row",
    formula="prepare retracts => a row is prepared, or the last one is aborted for want of memory",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    on=(Prepare,),
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch.retract_decode: always keep at least one request",
    twin="row-fits-nowhere",
)
def retraction_leaves_a_row(step: Step) -> Finding:
    """A request that fits nowhere and is only requeued is admitted and retracted for ever."""
    receipt = step.receipt
    if not receipt.retracted:
        return None
    aborted = set(_left(step)[0]) - set(receipt.retracted)
    if receipt.rows or aborted:
        return HOLDS
    return Clash(
        f"rows {receipt.rows}, aborted {sorted(aborted)}: one of them is there",
        f"prepare retracted {', '.join(receipt.retracted)}",
        "nobody is left to decode and nobody was told that its KV doesn't fit",
    )


@oracle(
    "skip-waits-for-a-finish",
    formula=(
        "prepare skips == (a row leaves because its queued result ends it, and pages that the round of the rest needs "
        "> free + unlocked cached pages)"
    ),
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    on=(Prepare,),
    source="sglang 0.5.23 managers/scheduler Scheduler.update_running_batch",
    twin="decode-skipped",
)
def skip_waits_for_a_finish(step: Step) -> Finding:
    """A step without a decode pays only where the queued result is about to give KV back, and then nobody gives way."""
    receipt, reqs = step.receipt, step.after.reqs
    if not receipt.skipped and not receipt.dropped:
        return None
    ending = [
        rid for rid in receipt.dropped if sampling(step, rid) and len(reqs[rid].output_ids) + 1 >= reqs[rid].max_new
    ]
    gave_way, released = _left(step)
    rest = step.after.running if receipt.skipped else (*receipt.rows, *gave_way)
    needed = sum(pages_of_a_round(step, step.before.reqs[rid]) for rid in rest)
    room = _room_without(step, released)
    if receipt.skipped == (bool(ending) and needed > room):
        return HOLDS
    return Clash(
        f"skipped {receipt.skipped} == (ending {ending} != [] and {needed} > {room})",
        f"prepare {'skipped' if receipt.skipped else 'did not skip'} the round of {', '.join(rest) or 'nobody'}, which "
        f"needs {needed} pages of {room}",
        f"the queued result ends {', '.join(ending) or 'nobody'} for certain",
    )


@oracle(
    "admission-leaves-room",
    formula=(
        "admitted with a first extend => a free row, and free + unlocked cached tokens before > tokens to extend + 1 "
        "page + rows that may be mixed in"
    ),
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    on=(Prefill, Mix),
    source="sglang 0.5.23 managers/schedule_policy PrefillAdder.add_one_req; TensorRT-LLM #16101",
    twin="prefill-under-pressure",
)
def admission_leaves_room(step: Step) -> Finding:
    """Who is let in on credit takes the pages that the running rows need for their next round."""
    pool, finding = step.after.pool, None
    for rid, prefix, _extend in step.receipt.admitted:
        then = step.before.reqs[rid]
        if then.req_pool_idx is not None:
            continue  # a prompt that goes on takes what there is
        size, held = pool.page_size, set(step.after.reqs[rid].slots[:prefix])
        pages = 0
        for other, req in step.before.reqs.items():
            if step.after.reqs[other].req_pool_idx is not None and req.req_pool_idx is not None:
                held.update(req.slots[: req.cache_protected_len])
                pages += len(pages_of(req.slots[req.cache_protected_len :], size))
        room = (pool.num_pages - pages) * size - len(held)
        mixed = len(step.after.running) + len(step.receipt.rows) - 1 if step.config.mixed_chunk else 0
        wanted = then.seqlen - prefix + size + mixed
        if room <= wanted:
            return Clash(
                f"{room} > {wanted}",
                f"{rid} was admitted with {then.seqlen - prefix} tokens to extend behind a prefix of {prefix}",
                f"{room} tokens were free or unlocked; a page and {mixed} running rows come on top: {wanted}",
                rid=rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "refusal-needs-pressure",
    formula="refused => no row is free, or free + unlocked cached tokens <= tokens to extend + 1 page + rows mixed in",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    needs=Capability.TREE_VIEW,
    on=(Prefill, Mix),
    source="sglang 0.5.23 managers/schedule_policy PrefillAdder.add_one_req, add_chunked_req",
    twin="refusal",
)
def refusal_needs_pressure(step: Step) -> Finding:
    """A request that would fit is admitted; else it might wait for ever in an empty server."""
    pool, event = step.after.pool, step.event
    if step.receipt.refused is None or pool.cached is None or not isinstance(event, Prefill | Mix):
        return None
    req = step.after.reqs[event.rid]
    size, last = step.config.page_size, req.seqlen - req.kv_committed_len
    locked = {slot for one in step.after.reqs.values() for slot in one.slots[: one.cache_protected_len]}
    cached = {slot for path in pool.cached for slot in path.slots}
    room = len(pool.free_pages) * size + len(cached - locked)
    # Where running rows may ride along, the estimate sets a token aside for each. A prompt that goes on takes what
    # there is, in chunks as short as that may be.
    goes_on = req.req_pool_idx is not None
    wanted = (0 if goes_on else last + size) + (len(step.after.running) if step.config.mixed_chunk else 0)
    admissible = goes_on or (bool(pool.free_rows) and not 0 < event.n < size)
    if not admissible or room <= wanted:
        return HOLDS
    return Clash(
        f"{room} <= {wanted}, free rows {pool.free_rows}",
        f"the prefill of {req.rid} was refused: {step.receipt.refused}",
        f"{len(pool.free_pages)} pages are free and {len(cached - locked)} cached tokens unlocked; {last} are to come",
        rid=req.rid,
    )
