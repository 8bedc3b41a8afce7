"""Rules on the side accounts of result processing: acceptance statistics. Host clock; drafts exclude the bonus."""

from __future__ import annotations

from operator import mul

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Idle, Settle
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import is_live, settled_rows

HOLDS = Verdict.HOLDS


@oracle(
    "verify-count-is-settled-rounds",
    formula=(
        "growth of spec_verify_ct == settled verifies of the live row; growth of correct drafts == emitted - rounds"
    ),
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.REQUEST,
    needs=Capability.SPECULATIVE,
    on=(Settle, Idle),
    source="sglang 0.5.23 managers/scheduler_components/batch_result_processor _resolve_spec_v2_tokens; sglang #11572",
    twin="verify-settles",
)
def verify_count_is_settled_rounds(step: Step, req: ReqView) -> Finding:
    """Each settled verify counts once, with its accepted drafts and without its bonus."""
    carried = settled_rows(step).get(req.rid)
    if carried is None or (req.finished_reason is not None and len(carried) > 1):
        return None  # nobody says which of them ended it
    before = step.before.reqs.get(req.rid)
    if before is None or not is_live(before):
        return None
    rounds = 0
    for known, _row in carried:
        rounds += known.mode == "DECODE"
    grown = len(req.output_ids) - len(before.output_ids)
    drafts = grown - len(carried) if rounds else 0
    found = (
        req.spec_verify_ct - before.spec_verify_ct,
        req.spec_num_correct_drafts - before.spec_num_correct_drafts,
    )
    if found == (rounds, drafts):
        return HOLDS
    return Clash(
        f"{found} == ({rounds}, {drafts})",
        f"{rounds} verifies of {req.rid} were settled and brought {grown} tokens",
        f"spec_verify_ct grew by {found[0]} and spec_num_correct_drafts by {found[1]}",
    )


@oracle(
    "histogram-adds-up",
    formula=(
        "sum(histogram) == spec_verify_ct, sum(i * histogram[i]) == "
        "spec_num_correct_drafts <= spec_verify_ct * spec_steps"
    ),
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.REQUEST,
    needs=Capability.SPECULATIVE,
    on=(Settle, Idle),
    changed_only=True,
    source="sglang 0.5.23 managers/schedule_batch Req.update_spec_correct_drafts_histogram; sglang #11572",
    twin="verify-settles",
)
def histogram_adds_up(step: Step, req: ReqView) -> Finding:
    """The three accounts of acceptance tell the same story, and no rate exceeds one."""
    rounds, drafts, histogram = req.spec_verify_ct, req.spec_num_correct_drafts, req.spec_correct_drafts_histogram
    if not rounds and not histogram:
        return None
    counted = sum(histogram)
    weighted = sum(map(mul, histogram, range(len(histogram))))
    if counted == rounds and weighted == drafts and 0 <= drafts <= rounds * step.config.spec_steps:
        return HOLDS
    return Clash(
        f"{counted} == {rounds}, {weighted} == {drafts} <= {rounds} * {step.config.spec_steps}",
        f"{req.rid} counts {rounds} verifies with {drafts} correct drafts",
        f"its histogram {histogram} holds {counted} verifies with {weighted} correct drafts",
    )
