"""Rules on the side accounts of result processing: acceptance statistics. Host clock; drafts exclude the bonus."""

from __future__ import annotations

from operator import mul

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Idle, Mix, Prefill, Prepare, Retract, Settle, Verify
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import is_dead, is_live, lived_rows, retained, settled_rows, view_of

HOLDS = Verdict.HOLDS


@oracle(
    "verify-count-is-settled-rounds",
    formula=(
        "growth of spec_verify_ct == settled verifies of the live row; growth of correct drafts == emitted - rounds, "
        "== accepted - 1 where a grammar cuts the run"
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
    before = step.before.reqs.get(req.rid)
    if req.rid not in settled_rows(step) or before is None or not is_live(before):
        return None
    grown = len(req.output_ids) - len(before.output_ids)
    carried = lived_rows(step, req, grown)
    if carried is None:
        return Verdict.UNKNOWN
    rounds = 0
    for known, _row in carried:
        rounds += known.mode == "DECODE"
    drafts = grown - len(carried) if rounds else 0
    if rounds and req.grammar_terminated:  # what the grammar has cut off was drafted right, and counts
        last, row = carried[-1]
        launch = view_of(step.after.launches, last.number)
        if launch is None or launch.exit is None:
            return Verdict.UNKNOWN
        run = launch.exit.next_tokens[row]
        drafts += len(run) - len(retained(step, req.rid, run))
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
    "global-acceptance-adds-up",
    formula=(
        "growth of the global (rows, tokens, drafts) == sums over all rows of the settled verifies, dead ones too; "
        "growth of the requests' drafts <= that of the global ones, == where no row was dead"
    ),
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.RUN,
    needs=Capability.SPECULATIVE | Capability.METRICS_VIEW | Capability.LAUNCH_VIEW,
    on=(Settle, Idle),
    source="sglang 0.5.23 managers/scheduler_components/metrics_reporter update_spec_metrics",
    twin="verify-settles",
)
def global_acceptance_adds_up(step: Step) -> Finding:
    """A dashboard's acceptance rate is that of the requests, but for dead rows: upstream counts them, as declared."""
    before, after = step.before.metrics, step.after.metrics
    if before is None or after is None:
        return Verdict.UNKNOWN
    rows = tokens = dead = 0
    for known in step.ledger.settled:
        launch = view_of(step.after.launches, known.number)
        if known.mode == "DECODE":
            if launch is None or launch.exit is None:
                return Verdict.UNKNOWN
            rows += len(launch.exit.accept_lens)
            tokens += sum(launch.exit.accept_lens)
            dead += sum(is_dead(step.before.reqs[rid]) for rid in known.rids)
    grown = (
        after.spec_num_forward_ct - before.spec_num_forward_ct,
        after.spec_num_accept_tokens - before.spec_num_accept_tokens,
        after.spec_num_correct_drafts - before.spec_num_correct_drafts,
    )
    if not rows and grown == (0, 0, 0):
        return None
    own = sum(
        req.spec_num_correct_drafts - step.before.reqs[rid].spec_num_correct_drafts
        for rid, req in step.after.reqs.items()
    )
    exact = not dead and len(step.ledger.settled) == 1  # else a row may have died between two results
    if grown == (rows, tokens, tokens - rows) and (own == grown[2] if exact else own <= grown[2]):
        return HOLDS
    return Clash(
        f"{grown} == ({rows}, {tokens}, {tokens - rows}), {own} {'==' if exact else '<='} {grown[2]}",
        f"the settled verifies had {rows} rows ({dead} dead) and accepted {tokens} tokens",
        f"the global counts grew by {grown} and those of the requests by {own} drafts",
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


@oracle(
    "counts-move-where-they-are-earned",
    formula=(
        "outside of a settle: spec_verify_ct, spec_num_correct_drafts and the histogram are what they were; "
        "retraction_count grows by 1 where the request is retracted and is what it was elsewhere"
    ),
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    on=(Prefill, Mix, Prepare, Verify, Retract, Settle, Idle),
    changed_only=True,
    source="sglang 0.5.23 managers/schedule_batch Req.reset_for_retract",
    twin="resume-after-retraction",
)
def counts_move_where_they_are_earned(step: Step, req: ReqView) -> Finding:
    """What a request has been through is told at its end, so a retraction or a new life forgets nothing of it."""
    before = step.before.reqs.get(req.rid)
    settles = type(step.event) in (Settle, Idle)
    if before is None or (req.finished and not settles):
        return None  # who is aborted for want of memory goes the way of a retraction
    names = ["retraction_count"]
    if not settles:
        names += ["spec_verify_ct", "spec_num_correct_drafts", "spec_correct_drafts_histogram"]
    for name in names:
        old, new = getattr(before, name), getattr(req, name)
        due = old + 1 if name == "retraction_count" and req.rid in step.receipt.retracted else old
        if new != due:
            return Clash(
                f"{name}({req.rid}) = {new} == {due}",
                f"before the event {name}({req.rid}) was {old}",
                f"it is {new} now, and {req.rid} was {'' if due != old else 'not '}retracted by this event",
            )
    return HOLDS
