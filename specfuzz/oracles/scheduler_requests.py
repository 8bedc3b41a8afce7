"""Rules that the scheduler owes each request: it is served, kept while there is room, and aborted in order."""

from __future__ import annotations

from specfuzz.core.asked import Standing
from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Abort, Mix, Prepare, Retract
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


@oracle(
    "retracted-until-admitted",
    formula="is_retracted before, neither admitted nor finished by the event => is_retracted after",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch.prepare_for_extend; sglang #23456",
    twin="resume-after-retraction",
)
def retracted_until_admitted(step: Step, req: ReqView) -> Finding:
    """As long as a forward of its old life may be unsettled, the flag is all that keeps its result off the request."""
    before = step.before.reqs.get(req.rid)
    if before is None or not before.is_retracted or req.finished:
        return None
    if any(rid == req.rid for rid, _prefix, _extend in step.receipt.admitted):
        return None
    if req.is_retracted:
        return HOLDS
    return Clash(
        f"is_retracted({req.rid}) = {req.is_retracted} == True",
        f"{req.rid} was retracted and waits, and this event has not admitted it",
        f"its flag is gone, while {carrying(step, req.rid)} unsettled forwards carry it",
    )


@oracle(
    "no-row-runs-past-its-cap",
    formula="prepared or mixed in: outputs + 1 for a queued result that samples for the row < max_new",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    needs=Capability.OVERLAP,
    on=(Prepare, Mix),
    source="sglang 0.5.23 managers/scheduler Scheduler._reqs_finishing_inflight; vLLM #27922",
    twin="prepare-behind-the-device",
)
def no_row_runs_past_its_cap(step: Step) -> Finding:
    """A row that its queued result ends for certain takes KV and a place in the round for nothing."""
    receipt, finding = step.receipt, None
    admitted = {rid for rid, _prefix, _extend in receipt.admitted}
    for rid in receipt.rows:
        req = step.after.reqs[rid]
        queued = sampling(step, rid) - (receipt.launch is not None)
        if rid in admitted or not queued:
            continue
        if len(req.output_ids) + 1 >= req.max_new:
            return Clash(
                f"{len(req.output_ids)} + 1 < {req.max_new}",
                f"{rid} has {len(req.output_ids)} output tokens and a queued result with one more at least",
                f"it takes part in the next round, although {req.max_new} are all that it may have",
                rid=rid,
            )
        finding = HOLDS
    return finding
