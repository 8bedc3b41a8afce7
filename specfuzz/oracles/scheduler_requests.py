"""Rules that the scheduler owes each request: it is served, kept while there is room, and aborted in order."""

from __future__ import annotations

from specfuzz.core.asked import Standing
from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Abort, Mix, Prefill, Prepare, Retract
from specfuzz.core.lemmas import ceil_align
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import LEDGER_EVENTS, carrying, is_dead, is_live, sampling

HOLDS, RUNNING = Verdict.HOLDS, Standing.RUNNING


@oracle(
    "no-request-is-left-behind",
    formula="prepare: every live, merged request is in the batch, or leaves it because its queued result ends it",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    on=(Prepare,),
    source="sglang 0.5.23 managers/scheduler Scheduler._reqs_finishing_inflight; vLLM #27922",
    twin="batch-shrinks",
)
def no_request_is_left_behind(step: Step, req: ReqView) -> Finding:
    """A request that may still need tokens takes part in every decode round."""
    receipt = step.receipt
    if not is_live(req) or receipt.refused is not None or receipt.skipped:
        return None
    asked = step.ledger.requests[req.rid]
    if asked.standing is not RUNNING:
        return None
    if req.rid in receipt.rows:
        return HOLDS
    flying = carrying(step, req.rid)
    least = len(req.output_ids) + flying
    if flying and least >= req.max_new:
        return HOLDS
    return Clash(
        f"{req.rid} in {receipt.rows}, or {len(req.output_ids)} + {flying} >= {req.max_new}",
        f"{req.rid} is live with {len(req.output_ids)} of {req.max_new} tokens and {flying} results queued",
        f"the prepared batch is {receipt.rows}",
    )


@oracle(
    "retraction-needs-pressure",
    formula="prepare retracts => pages that the round needs > free pages + unlocked cached pages; mix never retracts",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    on=(Prepare, Mix),
    source="sglang 0.5.23 managers/scheduler Scheduler.update_running_batch; sglang #14942",
    twin="retraction-under-pressure",
)
def retraction_needs_pressure(step: Step) -> Finding:
    """Nobody loses its KV while the free list alone could serve the round."""
    if not step.receipt.retracted:
        return None
    config, before = step.config, step.before
    page_size = config.page_size
    if type(step.event) is Mix:
        return Clash(
            f"retracted {step.receipt.retracted} == ()",
            f"a mixed step retracted {step.receipt.retracted}",
            "running rows for which there is no room sit a mixed step out",
        )
    needed = 0
    aborted = (rid for rid, _reason, _length in step.receipt.finished)
    for rid in (*step.receipt.rows, *step.receipt.retracted, *aborted):
        req = before.reqs[rid]
        have = ceil_align(req.kv_allocated_len, page_size)
        want = max(have, ceil_align(req.kv_committed_len + config.reserve_per_decode, page_size))
        needed += (want - have) // page_size
    cached = {slot // page_size for path in before.pool.cached or () for slot in path.slots}
    locked = {slot // page_size for req in before.reqs.values() for slot in req.slots[: req.cache_protected_len]}
    free = len(before.pool.free_pages) + len(cached - locked)
    if needed > free:
        return HOLDS
    return Clash(
        f"{needed} > {free}",
        f"prepare retracted {step.receipt.retracted}",
        f"the round needed {needed} pages; {len(before.pool.free_pages)} were free and the others of {free} unlocked",
    )


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
    )


@oracle(
    "nobody-is-lost",
    formula="unfinished: waiting => once in the waiting queue; running => in a batch or ended by a queued result",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 managers/scheduler Scheduler.get_next_batch_to_run; vLLM #27922",
    twin="resume-after-retraction",
)
def nobody_is_lost(step: Step, req: ReqView) -> Finding:
    """A request that nobody holds is never scheduled again."""
    asked, after = step.ledger.requests[req.rid], step.after
    if asked.standing is RUNNING:
        if req.rid in after.running:
            return HOLDS
        place, count = "batches", sum(req.rid in one.rids for one in after.batches)
        found = bool(count) or bool(sampling(step, req.rid))
    elif asked.standing is Standing.WAITING:
        place, count = "waiting queue", after.waiting.count(req.rid)
        found = count == 1
    else:
        return None
    if found:
        return HOLDS
    return Clash(
        f"{req.rid} in the {place}: {count} times",
        f"{req.rid} is {asked.standing} with {len(req.output_ids)} of {req.max_new} tokens",
        f"waiting {after.waiting}, batches {tuple(batch.rids for batch in after.batches)}, in flight {after.queue}",
    )


@oracle(
    "abort-waits-for-a-result",
    formula="abort: a waiting request finishes at once; a running one changes nothing but to_finish",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    on=(Abort,),
    source="sglang 0.5.23 managers/scheduler Scheduler.abort_request; mini-sglang #111",
    twin="abort-in-flight",
)
def abort_waits_for_a_result(step: Step, req: ReqView) -> Finding:
    """An aborted request keeps its KV until a processed result releases it, because a forward may still use it."""
    if type(step.event) is not Abort or req.rid != step.event.rid:
        return None
    before = step.before.reqs[req.rid]
    if is_live(before):
        found = (req.finished_reason, req.req_pool_idx, req.kv_committed_len, req.kv_allocated_len, req.output_ids)
        wanted = (None, before.req_pool_idx, before.kv_committed_len, before.kv_allocated_len, before.output_ids)
        if found == wanted:
            return HOLDS
        return Clash(
            f"(reason, row, committed, allocated) = {found[:4]} == {wanted[:4]}",
            f"{req.rid} was running on row {before.req_pool_idx} when it was aborted",
            f"the abort itself left it with (reason, row, committed, allocated) = {found[:4]}",
        )
    if is_dead(before) and not before.is_retracted:
        return None
    if req.finished_reason == "abort" and req.req_pool_idx is None:
        return HOLDS
    return Clash(
        f"finished_reason = {req.finished_reason} == 'abort', row = {req.req_pool_idx} == None",
        f"{req.rid} was waiting when it was aborted",
        f"afterwards its reason is {req.finished_reason} and its row {req.req_pool_idx}",
    )


@oracle(
    "retraction-resets",
    formula="retracted => no row, no lock, committed = allocated = protected = 0, output kept, retraction_count + 1",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    on=(Retract, Prepare, Mix),
    source="sglang 0.5.23 managers/schedule_batch Req.reset_for_retract; vLLM #47900",
    twin="retraction",
)
def retraction_resets(step: Step, req: ReqView) -> Finding:
    """A retracted request gives back everything except its text."""
    if req.rid not in step.receipt.retracted:
        return None
    before = step.before.reqs[req.rid]
    found = (
        req.req_pool_idx, req.kv_committed_len, req.kv_allocated_len, req.cache_protected_len, req.holds_lock,
        req.is_retracted, req.retraction_count,
    )  # fmt: skip
    wanted = (None, 0, 0, 0, False, True, before.retraction_count + 1)
    if found == wanted and req.output_ids == before.output_ids and not req.slots:
        return HOLDS
    names = "row, committed, allocated, protected, lock, is_retracted, retraction_count"
    return Clash(
        f"({names}) = {found} == {wanted}, {len(req.output_ids)} == {len(before.output_ids)} output tokens",
        f"{req.rid} was retracted by this event",
        f"({names}) is {found} and {len(before.output_ids)} output tokens became {len(req.output_ids)}",
    )
