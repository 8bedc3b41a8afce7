"""Rules for prompts that are launched in chunks, and for prefills that the running rows ride along with. Host clock."""

from __future__ import annotations

from specfuzz.core.asked import Standing
from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Idle, Mix, Prefill, Prepare, Retract, Settle
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import LEDGER_EVENTS, is_live, sampling
from specfuzz.oracles.scheduler_memory import pages_of_a_round

HOLDS = Verdict.HOLDS


@oracle(
    "chunks-in-flight-are-counted",
    formula="inflight_middle_chunks == launched, unsettled forwards that carry a middle chunk of the request",
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.REQUEST,
    needs=Capability.CHUNKED_PREFILL,
    on=(Prefill, Mix, Settle, Idle),
    source="sglang 0.5.23 managers/scheduler_components/batch_result_processor process_batch_result_prefill",
    twin="middle-chunk-settles",
)
def chunks_in_flight_are_counted(step: Step, req: ReqView) -> Finding:
    """The count tells a middle chunk's result, whose sampled token means nothing, from the last one's."""
    ledger, rid = step.ledger, req.rid
    wanted = 0
    for known in ledger.in_flight:
        if rid in known.middle:
            wanted += 1
    if req.inflight_middle_chunks == wanted:
        if wanted or any(rid in known.middle for known in ledger.settled):
            return HOLDS
        return None
    return Clash(
        f"{req.inflight_middle_chunks} == {wanted}",
        f"inflight_middle_chunks({rid}) is {req.inflight_middle_chunks}",
        f"{wanted} launched forwards with a middle chunk of {rid} are unsettled",
    )


@oracle(
    "chunked-request-is-remembered",
    formula="chunked_req == the request whose prompt is launched in part, until its last chunk or its end",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    needs=Capability.CHUNKED_PREFILL,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 managers/scheduler Scheduler.get_next_batch_to_run, process_pending_chunked_abort",
    twin="chunk-goes-on",
)
def chunked_request_is_remembered(step: Step) -> Finding:
    """Whoever forgets it starts its prompt again, or never."""
    found = step.after.chunked
    if found is None:
        return Verdict.UNKNOWN
    wanted = tuple(
        [rid for rid, asked in step.ledger.requests.items() if asked.standing is Standing.CHUNKED]
    )  # one at a time
    if found == wanted:
        return HOLDS if wanted else None
    return Clash(
        f"chunked = {found} == {wanted}",
        f"the scheduler goes on with {', '.join(found) or 'no prompt'}",
        f"of {', '.join(wanted) or 'no request'} a part of the prompt is launched and the rest is due",
    )


@oracle(
    "chunked-request-stays-outside",
    formula="a request whose prompt goes on is neither in the running batch nor in the prepared one",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    needs=Capability.CHUNKED_PREFILL,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 managers/scheduler Scheduler.get_next_batch_to_run",
    twin="decode-between-chunks",
)
def chunked_request_stays_outside(step: Step, req: ReqView) -> Finding:
    """A prompt that is in by half has no next token to decode."""
    if step.ledger.requests[req.rid].standing is not Standing.CHUNKED:
        return None
    prepared = step.after.prepared or ()
    if req.rid not in step.after.running and req.rid not in prepared:
        return HOLDS
    return Clash(
        f"{req.rid} not in running {step.after.running}, not in prepared {prepared}",
        f"{req.kv_committed_len} of {req.seqlen} tokens of {req.rid} are launched",
        f"the scheduler decodes {step.after.running} and has prepared {prepared}",
    )


@oracle(
    "chunked-request-keeps-its-row",
    formula="while a prompt goes on: the request holds the same row, and kv_committed_len only grows",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    needs=Capability.CHUNKED_PREFILL,
    on=LEDGER_EVENTS,
    changed_only=True,
    source="sglang 0.5.23 mem_cache/memory_pool ReqToTokenPool.alloc; sglang-jax #1008",
    twin="chunk-goes-on",
)
def chunked_request_keeps_its_row(step: Step, req: ReqView) -> Finding:
    """The forward of the last chunk still reads the row that the next one is written to."""
    before = step.before.reqs.get(req.rid)
    if step.ledger.requests[req.rid].standing is not Standing.CHUNKED or before is None:
        return None
    if before.req_pool_idx is None and any(rid == req.rid for rid, _prefix, _extend in step.receipt.admitted):
        return None  # its first chunk
    if req.req_pool_idx == before.req_pool_idx is not None and req.kv_committed_len >= before.kv_committed_len:
        return HOLDS
    return Clash(
        f"row {req.req_pool_idx} == {before.req_pool_idx}, {req.kv_committed_len} >= {before.kv_committed_len}",
        f"{req.rid} held row {before.req_pool_idx} with {before.kv_committed_len} committed tokens",
        f"its prompt goes on, and now it holds row {req.req_pool_idx} with {req.kv_committed_len}",
    )


@oracle(
    "aborted-chunk-is-dropped",
    formula="scheduling step: a chunked request that was aborted is finished and holds no row",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    needs=Capability.CHUNKED_PREFILL,
    on=(Prefill, Mix, Prepare, Retract, Idle),
    source="sglang 0.5.23 managers/scheduler Scheduler.process_pending_chunked_abort",
    twin="abort-between-chunks",
)
def aborted_chunk_is_dropped(step: Step, req: ReqView) -> Finding:
    """The abort of a chunked request takes effect before the next chunk could be launched, and gives its KV back."""
    asked, before = step.ledger.requests[req.rid], step.before.reqs.get(req.rid)
    if not asked.dropping or before is None or not is_live(before):
        return None
    dropped = (req.rid, "abort", None) in step.receipt.finished
    if dropped and req.finished_reason == "abort" and req.req_pool_idx is None and not req.holds_lock:
        return HOLDS
    return Clash(
        f"finished_reason = {req.finished_reason} == 'abort', row = {req.req_pool_idx} == None",
        f"{req.rid} was aborted between two chunks, on row {before.req_pool_idx}",
        f"after the next scheduling step its reason is {req.finished_reason} and its row {req.req_pool_idx}",
    )


@oracle(
    "mix-carries-the-running",
    formula="mix: every running row rides along, unless its queued result ends it; or none, for want of free pages",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    needs=Capability.MIXED_CHUNK,
    on=(Mix,),
    source="sglang 0.5.23 managers/scheduler Scheduler._get_new_batch_prefill_raw",
    twin="mixed-launch",
)
def mix_carries_the_running(step: Step) -> Finding:
    """A mixed step delays nobody whom there is room for, and splits the running rows under no circumstances."""
    receipt = step.receipt
    if receipt.launch is None:
        return None
    admitted = {rid for rid, _prefix, _extend in receipt.admitted}
    left = [
        req
        for rid, req in step.after.reqs.items()
        if step.ledger.requests[rid].standing is Standing.RUNNING
        and is_live(req) and rid not in admitted and rid not in receipt.rows and not _ends_by_length(step, req)
    ]  # fmt: skip
    if not left:
        return HOLDS
    needed, free = sum(pages_of_a_round(step, req) for req in left), len(step.after.pool.free_pages)
    if receipt.mode == "EXTEND" and needed > free:
        return HOLDS
    return Clash(
        f"{needed} > {free} pages and mode {receipt.mode} == EXTEND",
        f"{', '.join(req.rid for req in left)} sat out the step of {receipt.rows}",
        f"their next round needs {needed} pages and {free} are free",
    )


def _ends_by_length(step: Step, req: ReqView) -> bool:
    # The row has left the step before it was launched: its own forwards are those that were queued before.
    return bool(sampling(step, req.rid)) and len(req.output_ids) + 1 >= req.max_new
