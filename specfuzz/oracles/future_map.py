"""Rules of the relay: what a round reads there is what the round before published and stashed for that very request."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import LaunchView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import LEDGER_EVENTS, changed_batches, forward, limits

HOLDS = Verdict.HOLDS
SPECULATIVE_OVERLAP = Capability.SPECULATIVE | Capability.OVERLAP


@oracle(
    "worker-starts-at-the-frontier",
    formula=(
        "entry seq_lens == frontier of the forward before (DECODE), frontier "
        "+ 1 (mixed tail), committed (plain, extend)"
    ),
    clock=Clock.DEVICE,
    owner=Owner.FUTURE_MAP,
    scope=Scope.BATCH,
    point=Point.WORKER_ENTRY,
    needs=Capability.LAUNCH_VIEW,
    source="sglang 0.5.23 managers/overlap_utils FutureMap.resolve_seq_lens_cpu, resolve_mixed_spec_tails",
    twin="device-leads-host",
)
def worker_starts_at_the_frontier(step: Step, launch: LaunchView) -> Finding:
    """A forward works from the length that the forward before it has decided."""
    entry = launch.entry
    if entry is None:
        return Verdict.UNKNOWN
    known, speculative = forward(step, launch), limits(step).speculative
    finding: Finding = None
    for row, req in known.rows:
        wanted = launch.committed[row]
        if speculative and req.rid not in known.extended:
            origin = known.origin(step, row)
            if origin is None:
                return Verdict.UNKNOWN
            wanted = origin[0] + (1 if launch.mode == "MIXED" else 0)
        if entry.seq_lens[row] != wanted:
            return Clash(
                f"seq_lens[{row}] = {entry.seq_lens[row]} == {wanted}",
                f"forward {launch.number} ({launch.mode}) read {entry.seq_lens[row]} for {req.rid}",
                f"the host had committed {launch.committed[row]} at launch; with "
                f"what was in flight then, {wanted} is due",
                rid=req.rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "device-lead-is-one-round",
    formula="DECODE entry: 0 <= seq_lens - kv_committed_len at launch <= max accept; == 0 with nothing unsettled",
    clock=Clock.DEVICE,
    owner=Owner.SCHEDULER,
    scope=Scope.BATCH,
    point=Point.WORKER_ENTRY,
    needs=Capability.LAUNCH_VIEW | Capability.SPECULATIVE,
    source="sglang 0.5.23 managers/schedule_batch ReqKvInfo.kv_committed_len",
    twin="device-leads-host",
)
def device_lead_is_one_round(step: Step, launch: LaunchView) -> Finding:
    """The device is ahead of the host by the run of at most one unsettled forward."""
    entry = launch.entry
    if launch.mode != "DECODE":
        return None
    if entry is None:
        return Verdict.UNKNOWN
    most = limits(step).max_accept if step.config.overlap and launch.unsettled_before else 0
    finding: Finding = None
    for row, req in forward(step, launch).rows:
        lead = entry.seq_lens[row] - launch.committed[row]
        if not 0 <= lead <= most:
            return Clash(
                f"0 <= {entry.seq_lens[row]} - {launch.committed[row]} = {lead} <= {most}",
                f"forward {launch.number} started {req.rid} at {entry.seq_lens[row]}",
                f"the host had committed {launch.committed[row]} with {launch.unsettled_before} results unsettled",
                rid=req.rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "worker-feeds-the-pending-token",
    formula=(
        "DECODE entry: the token that a row feeds == last token that the forward before it decided for that request"
    ),
    clock=Clock.RELAY,
    owner=Owner.FUTURE_MAP,
    scope=Scope.BATCH,
    point=Point.WORKER_ENTRY,
    needs=Capability.LAUNCH_VIEW,
    source="sglang 0.5.23 managers/overlap_utils resolve_forward_inputs; vLLM #46899",
    twin="verify-settles",
)
def worker_feeds_the_pending_token(step: Step, launch: LaunchView) -> Finding:
    """The relayed bonus belongs to its row and to the round before."""
    entry = launch.entry
    if launch.mode not in ("DECODE", "MIXED"):
        return None
    if entry is None:
        return Verdict.UNKNOWN
    known, relayed = forward(step, launch), bool(entry.bonus) and launch.mode == "DECODE"
    finding: Finding = None
    for row, req in known.rows:
        if req.rid in known.extended:
            continue
        fed = entry.bonus[row] if relayed else (entry.input_tokens[row] or (None,))[0]
        origin = known.origin(step, row)
        if origin is None:
            return Verdict.UNKNOWN
        wanted = origin[1]
        if fed != wanted:
            return Clash(
                f"token fed to {req.rid} = {fed} == {wanted}",
                f"forward {launch.number} feeds {fed} for {req.rid} in row {launch.req_pool_indices[row]}",
                f"the forward before decided {wanted} as its last token",
                rid=req.rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "draft-extras-pair-with-rows",
    formula="DECODE entry: (topk_index, hidden) of row i is not the state of another row or of an earlier frontier",
    clock=Clock.RELAY,
    owner=Owner.FUTURE_MAP,
    scope=Scope.BATCH,
    point=Point.WORKER_ENTRY,
    needs=Capability.LAUNCH_VIEW | Capability.DRAFT_EXTRAS,
    source="sglang 0.5.23 managers/overlap_utils gather_spec_extras; sglang #18984",
    twin="two-rows-in-a-batch",
)
def draft_extras_pair_with_rows(step: Step, launch: LaunchView) -> Finding:
    """Draft state that was relayed for one request never reaches another one, nor a later round."""
    entry = launch.entry
    if launch.mode != "DECODE":
        return None
    if entry is None or not entry.hidden:
        return Verdict.UNKNOWN
    rows, bounds = forward(step, launch).rows, limits(step)
    finding: Finding = None
    for row, req in rows:
        base, hidden = entry.seq_lens[row], entry.hidden[row]
        if not 0 < base <= bounds.row_width:
            continue
        text = step.ledger.requests[req.rid].text
        if hidden == text.hidden(base):
            finding = HOLDS
            continue
        for position in range(max(0, base - 2 * bounds.max_accept), base):
            if hidden == text.hidden(position):
                return _mispaired(launch, row, f"it is the state of {req.rid} at position {position}, a round too old")
        for other, stranger in rows:
            place = entry.seq_lens[other]
            if other == row or not 0 < place <= bounds.row_width:
                continue
            if hidden == step.ledger.requests[stranger.rid].text.hidden(place):
                return _mispaired(launch, row, f"it is the state of {stranger.rid} at position {place}")
    return finding


def _mispaired(launch: LaunchView, row: int, whose: str) -> Clash:
    assert launch.entry is not None
    rid, base, hidden = launch.rids[row], launch.entry.seq_lens[row], launch.entry.hidden[row]
    return Clash(
        f"hidden[{row}] = {hidden} == O({base}) of {rid}",
        f"forward {launch.number} read the draft state {hidden} for {rid} at frontier {base}",
        whose,
        rid=rid,
    )


@oracle(
    "future-indices-are-rows",
    formula="spec_info.future_indices == req_pool_indices, row by row, for every batch that has rows",
    clock=Clock.RELAY,
    owner=Owner.FUTURE_MAP,
    scope=Scope.RUN,
    needs=SPECULATIVE_OVERLAP,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 speculative/eagle_info EagleDraftInput.filter_batch; sglang #2939",
    twin="batch-shrinks",
)
def future_indices_are_rows(step: Step) -> Finding:
    """The relay rows that a batch will read are filtered and merged with its requests."""
    finding: Finding = None
    for batch in changed_batches(step):
        if batch.future_indices is None or batch.req_pool_indices is None:
            continue
        if batch.future_indices != batch.req_pool_indices:
            return Clash(
                f"future_indices {batch.future_indices} == req_pool_indices {batch.req_pool_indices}",
                f"the {batch.name} batch of {batch.rids} works on the rows {batch.req_pool_indices}",
                f"it will read the relay rows {batch.future_indices}",
            )
        finding = HOLDS
    return finding


@oracle(
    "publish-equals-result",
    formula="worker exit: what was published for a row == new_seq_lens of the result",
    clock=Clock.RELAY,
    owner=Owner.FUTURE_MAP,
    scope=Scope.BATCH,
    point=Point.WORKER_EXIT,
    needs=Capability.LAUNCH_VIEW | SPECULATIVE_OVERLAP,
    source="sglang 0.5.23 managers/overlap_utils FutureMap.publish",
    twin="launch",
)
def publish_equals_result(step: Step, launch: LaunchView) -> Finding:
    """The frontier that the next round will read is the one that this round decided."""
    leaving = launch.exit
    if leaving is None or leaving.published is None:
        return Verdict.UNKNOWN
    if leaving.published == leaving.new_seq_lens:
        return HOLDS
    return Clash(
        f"published {leaving.published} == new_seq_lens {leaving.new_seq_lens}",
        f"forward {launch.number} of {launch.rids} decided the frontiers {leaving.new_seq_lens}",
        f"it published {leaving.published}",
    )


@oracle(
    "frontier-only-advances",
    formula="per request and residence: the frontier at the exit > the one of the forward before it",
    clock=Clock.RELAY,
    owner=Owner.FUTURE_MAP,
    scope=Scope.BATCH,
    point=Point.WORKER_EXIT,
    needs=Capability.LAUNCH_VIEW | Capability.SPECULATIVE,
    source="sglang 0.5.23 managers/overlap_utils FutureMap.publish",
    twin="device-leads-host",
)
def frontier_only_advances(step: Step, launch: LaunchView) -> Finding:
    """No round takes back what a round before it has decided."""
    leaving = launch.exit
    if launch.mode == "EXTEND":
        return None
    if leaving is None:
        return Verdict.UNKNOWN
    known = forward(step, launch)
    finding: Finding = None
    for row, req in known.rows:
        if req.rid in known.extended:
            continue
        origin = known.origin(step, row)
        if origin is None:
            return Verdict.UNKNOWN
        floor, decided = origin[0], leaving.new_seq_lens[row]
        if decided <= floor:
            return Clash(
                f"{decided} > {floor}",
                f"forward {launch.number} set the frontier of {req.rid} to {decided}",
                f"it stood at {floor} already",
                rid=req.rid,
            )
        finding = HOLDS
    return finding
