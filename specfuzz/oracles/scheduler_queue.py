"""Rules that the scheduler must keep on batches, rows and the result queue: what is launched and when."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Idle, Mix, Prefill, Prepare, Settle, Verify
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import LaunchView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import LEDGER_EVENTS, changed_batches, is_live

HOLDS = Verdict.HOLDS


@oracle(
    "queue-depth",
    formula="unsettled forwards before a launch <= 1 (0 without overlap), and the new one is queued last",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.BATCH,
    source="sglang 0.5.23 managers/scheduler Scheduler.event_loop_overlap",
    twin="work-pending",
)
def queue_depth(step: Step, launch: LaunchView) -> Finding:
    """The lookahead is exactly one forward."""
    before, after = step.before.queue, step.after.queue
    most = 1 if step.config.overlap else 0
    if len(before) <= most and after == (*before, launch.number):
        return HOLDS
    return Clash(
        f"len({before}) <= {most} and {after} == {(*before, launch.number)}",
        f"forward {launch.number} was launched with {len(before)} results unprocessed",
        f"afterwards the queue is {after}",
    )


@oracle(
    "settle-takes-the-oldest",
    formula="settle: settled == queue[0] and the rest of the queue stays; idle: the queue is empty",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    on=(Settle, Idle),
    source="sglang 0.5.23 managers/scheduler Scheduler.event_loop_overlap pop_and_process",
    twin="result-settles",
)
def settle_takes_the_oldest(step: Step) -> Finding:
    """Results are processed in the order of their launches, each once."""
    before, after = step.before.queue, step.after.queue
    if not before:
        return None
    if type(step.event) is Idle:
        fits = step.receipt.settled == before[-1] and not after
    else:
        fits = step.receipt.settled == before[0] and after == before[1:]
    if fits:
        return HOLDS
    return Clash(
        f"queue {before} -> {after}, settled {step.receipt.settled}",
        f"before the event the queue was {before}",
        f"it processed result {step.receipt.settled} and left {after}",
    )


@oracle(
    "no-dead-row-launched",
    formula="prepare or extend: every row of the batch is live; verify: rows == prepared rows",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    on=(Prepare, Prefill, Mix, Verify),
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch.filter_batch",
    twin="batch-shrinks",
)
def no_dead_row_launched(step: Step) -> Finding:
    """A row that was finished or retracted is filtered out before a batch is built."""
    rows = step.receipt.rows
    if not rows:
        return None
    if type(step.event) is Verify:
        if rows == step.before.prepared:
            return HOLDS
        return Clash(
            f"{rows} == {step.before.prepared}",
            f"the launched batch carries {rows}",
            f"prepare had made room for {step.before.prepared}",
        )
    for rid in rows:
        req = step.after.reqs[rid]
        if not is_live(req):
            state = f"finished by {req.finished_reason}" if req.finished else f"retracted {req.is_retracted}"
            return Clash(
                f"{rid} in {rows} is live",
                f"the batch carries {rid}",
                f"{rid} is {state}, row {req.req_pool_idx}",
                rid=rid,
            )
    return HOLDS


@oracle(
    "rows-are-unique",
    formula="a batch names each request and each row once, and never the padding row 0",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.BATCH,
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch.merge_batch",
    twin="two-rows-in-a-batch",
)
def rows_are_unique(step: Step, launch: LaunchView) -> Finding:
    """An extend that is merged twice doubles its rows."""
    rids, rows = launch.rids, launch.req_pool_indices
    if len(set(rids)) == len(rids) and len(set(rows)) == len(rows) and 0 not in rows:
        return HOLDS
    return Clash(
        f"distinct({rids}) and distinct({rows}) and 0 not in rows",
        f"forward {launch.number} carries the requests {rids}",
        f"and the rows {rows}",
    )


@oracle(
    "rows-belong-to-their-requests",
    formula="launch: len(rows) == len(rids) and req_pool_indices[i] == rids[i].req_pool_idx",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.BATCH,
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch.filter_batch; sglang #18984",
    twin="two-rows-in-a-batch",
)
def rows_belong_to_their_requests(step: Step, launch: LaunchView) -> Finding:
    """The row tensor of a batch is aligned with its request list."""
    reqs = step.after.reqs
    if len(launch.rids) == len(launch.req_pool_indices):
        for rid, row in zip(launch.rids, launch.req_pool_indices, strict=True):
            if reqs[rid].req_pool_idx != row and is_live(reqs[rid]):
                break
        else:
            return HOLDS
    held = tuple(reqs[rid].req_pool_idx for rid in launch.rids)
    return Clash(
        f"{launch.req_pool_indices} == {held}",
        f"forward {launch.number} of {launch.rids} works on the rows {launch.req_pool_indices}",
        f"the requests hold the rows {held}",
    )


@oracle(
    "batch-arrays-agree",
    formula="len(rids) == len(req_pool_indices) == len(seq_lens) == len(seq_lens_cpu) for every batch that has rows",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch.filter_batch; sglang #18984, #10991",
    twin="batch-shrinks",
)
def batch_arrays_agree(step: Step) -> Finding:
    """Filter and merge treat every per-row array of a batch alike."""
    finding: Finding = None
    for batch in changed_batches(step):  # an emptied batch keeps stale tensors and is dropped as a whole
        finding = HOLDS
        rows, indices, lens, mirror = len(batch.rids), batch.req_pool_indices, batch.seq_lens, batch.seq_lens_cpu
        if indices and lens and mirror and len(indices) == len(lens) == len(mirror) == rows:
            continue
        for name, values in (("req_pool_indices", indices), ("seq_lens", lens), ("seq_lens_cpu", mirror)):
            if values is not None and len(values) != rows:
                return Clash(
                    f"len({name}) = {len(values)} == {rows}",
                    f"the {batch.name} batch carries the {rows} requests {batch.rids}",
                    f"its {name} is {values}",
                )
    return finding


@oracle(
    "mirror-equals-device",
    formula="no device work pending: seq_lens_cpu == seq_lens for every batch that has both",
    clock=Clock.DEVICE,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    needs=Capability.DEVICE_VIEW,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 managers/overlap_utils FutureMap.resolve_seq_lens_cpu",
    twin="verify-settles",
)
def mirror_equals_device(step: Step) -> Finding:
    """The host mirror of a batch's lengths is exact wherever the scheduler keeps one."""
    device = step.after.device
    if device is None:
        return Verdict.UNKNOWN
    if device.pending:
        return None
    finding: Finding = None
    for batch in changed_batches(step):
        if batch.seq_lens is None or batch.seq_lens_cpu is None:
            continue
        if batch.seq_lens != batch.seq_lens_cpu:
            return Clash(
                f"seq_lens_cpu {batch.seq_lens_cpu} == seq_lens {batch.seq_lens}",
                f"the {batch.name} batch's host mirror says {batch.seq_lens_cpu}",
                f"its device lengths are {batch.seq_lens} and nothing is pending",
            )
        finding = HOLDS
    return finding
