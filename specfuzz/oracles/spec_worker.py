"""Rules of the speculative worker: accept lengths, frontiers, draft state, publishes, and ledgers it must not touch."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import LaunchView, ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import CONTENT_EVENTS, forward, is_live, judged, limits, settled_len, wrong_cell
from specfuzz.oracles.owners import OWNERS, is_owner
from specfuzz.oracles.spec_tree import first_proposals

HOLDS = Verdict.HOLDS
SPECULATIVE = Capability.SPECULATIVE


@oracle(
    "accept-in-range",
    formula="worker exit: 1 <= accept_lens <= spec_steps + 1 (1 for extend and plain), and as many tokens as accepted",
    clock=Clock.DEVICE,
    owner=Owner.SPEC_WORKER,
    scope=Scope.BATCH,
    point=Point.WORKER_EXIT,
    needs=Capability.LAUNCH_VIEW,
    source="sglang 0.5.23 speculative/eagle_worker_common run_eagle_verify",
    twin="launch",
)
def accept_in_range(step: Step, launch: LaunchView) -> Finding:
    """A round decides at least the bonus and at most every draft plus the bonus."""
    leaving = launch.exit
    if leaving is None:
        return Verdict.UNKNOWN
    most = limits(step).max_accept if launch.mode == "DECODE" else 1
    for row, rid in enumerate(launch.rids):
        accepted, tokens = leaving.accept_lens[row], leaving.next_tokens[row]
        if not 1 <= accepted <= most or len(tokens) != accepted:
            return Clash(
                f"1 <= accept_lens[{row}] = {accepted} <= {most} and len({tokens}) == {accepted}",
                f"forward {launch.number} ({launch.mode}) accepted {accepted} tokens for {rid}",
                f"it may accept 1 to {most}, and it returned {len(tokens)}",
                rid=rid,
            )
    return HOLDS if launch.rids else None


@oracle(
    "frontier-steps-by-accept",
    formula="worker exit: new_seq_lens == entry seq_lens + accept_lens (speculative DECODE), == entry seq_lens (else)",
    clock=Clock.DEVICE,
    owner=Owner.SPEC_WORKER,
    scope=Scope.BATCH,
    point=Point.WORKER_EXIT,
    needs=Capability.LAUNCH_VIEW,
    source="sglang 0.5.23 speculative/eagle_worker_common run_eagle_verify",
    twin="launch",
)
def frontier_steps_by_accept(step: Step, launch: LaunchView) -> Finding:
    """The frontier moves by what was accepted; an extend's sampled token has no KV and moves nothing."""
    leaving, entry = launch.exit, launch.entry
    if leaving is None or entry is None:
        return Verdict.UNKNOWN
    stepping = limits(step).speculative and launch.mode == "DECODE"
    for row, rid in enumerate(launch.rids):
        wanted = entry.seq_lens[row] + (leaving.accept_lens[row] if stepping else 0)
        if leaving.new_seq_lens[row] != wanted:
            return Clash(
                f"new_seq_lens[{row}] = {leaving.new_seq_lens[row]} == {entry.seq_lens[row]} + "
                f"{leaving.accept_lens[row] if stepping else 0}",
                f"forward {launch.number} ({launch.mode}) started {rid} at {entry.seq_lens[row]} and accepted "
                f"{leaving.accept_lens[row]}",
                f"its result moves the frontier to {leaving.new_seq_lens[row]}",
                rid=rid,
            )
    return HOLDS if launch.rids else None


@oracle(
    "right-draft-is-accepted",
    formula="worker exit, live rows: accept_lens == the accept length that the verify asked for",
    clock=Clock.DEVICE,
    owner=Owner.SPEC_WORKER,
    scope=Scope.BATCH,
    point=Point.WORKER_EXIT,
    needs=Capability.LAUNCH_VIEW | SPECULATIVE,
    source="sglang 0.5.23 speculative/eagle_worker_common run_eagle_verify; sglang #16310, #10846",
    twin="run-of-several-tokens",
)
def right_draft_is_accepted(step: Step, launch: LaunchView) -> Finding:
    """A draft from the right state proposes what the target says, so a shorter run betrays a wrong draft state."""
    if launch.mode != "DECODE":
        return None
    known = forward(step, launch)
    asked = known.asked
    if launch.exit is None or asked is None:
        return Verdict.UNKNOWN
    finding: Finding = None
    for row, req in known.rows:
        accepted, wanted = launch.exit.accept_lens[row], asked.accept[row]
        if accepted != wanted:
            return Clash(
                f"accept_lens[{row}] = {accepted} == {wanted}",
                f"proposals 1 to {wanted - 1} of {req.rid} follow from a right "
                f"draft state, proposal {wanted} is made wrong",
                f"forward {launch.number} accepted {accepted} tokens incl. the bonus",
                rid=req.rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "draft-state-is-right",
    formula=(
        "DECODE entry: hidden == O(C) and topk_index == the token that it proposes (of a tree: all its seeds), "
        "C = entry seq_lens"
    ),
    clock=Clock.DEVICE,
    owner=Owner.SPEC_WORKER,
    scope=Scope.BATCH,
    point=Point.WORKER_ENTRY,
    needs=Capability.LAUNCH_VIEW | Capability.DRAFT_EXTRAS,
    source="sglang 0.5.23 speculative/eagle_info EagleDraftInput; sglang #9976",
    twin="launch",
)
def draft_state_is_right(step: Step, launch: LaunchView) -> Finding:
    """The draft has consumed exactly the true tokens up to the bonus."""
    entry = launch.entry
    if launch.mode != "DECODE":
        return None
    if entry is None or not entry.hidden or not entry.topk_index:
        return Verdict.UNKNOWN
    tree = step.config.topk > 1
    if tree and not entry.topk_seeds:
        return Verdict.UNKNOWN
    width = limits(step).row_width
    finding: Finding = None
    for row, req in forward(step, launch).rows:
        base = entry.seq_lens[row]
        if not 0 < base <= width:
            continue
        hidden = step.ledger.requests[req.rid].text.hidden(base)
        topk = entry.topk_seeds[row] if tree else (entry.topk_index[row],)
        wanted = first_proposals(step, req.rid, base, hidden)
        if entry.hidden[row] != hidden or topk != wanted:
            return Clash(
                f"(hidden, *topk_index)[{row}] = {(entry.hidden[row], *topk)} == {(hidden, *wanted)}",
                f"forward {launch.number} drafts for {req.rid} from the state {entry.hidden[row]}",
                f"a draft that has consumed the true text through position {base} is in state {hidden}",
                rid=req.rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "publishes-once",
    formula="speculative launch: the worker publishes once under overlap, never without",
    clock=Clock.RELAY,
    owner=Owner.SPEC_WORKER,
    scope=Scope.BATCH,
    needs=Capability.LAUNCH_VIEW | SPECULATIVE,
    source="sglang 0.5.23 speculative/eagle_worker_common run_eagle_verify on_publish",
    twin="launch",
)
def publishes_once(step: Step, launch: LaunchView) -> Finding:
    """Each forward has one frontier, and the next round waits for it."""
    wanted = 1 if step.config.overlap else 0
    if launch.publishes == wanted:
        return HOLDS
    return Clash(
        f"publishes = {launch.publishes} == {wanted}",
        f"the worker of forward {launch.number} ({launch.mode}) published {launch.publishes} times",
        f"{'with' if step.config.overlap else 'without'} overlap the scheduler expects {wanted}",
    )


@oracle(
    "draft-kv-is-true",
    formula="settled p < kv_committed_len: draft cell of slots[p] == v1(token at p + 1, p + 1)",
    clock=Clock.DEVICE,
    owner=Owner.SPEC_WORKER,
    scope=Scope.REQUEST,
    needs=Capability.CONTENT_VIEW | Capability.DEVICE_VIEW | Capability.DRAFT_KV,
    on=CONTENT_EVENTS,
    source="sglang 0.5.23 speculative/eagle_worker_common draft extend after verify; sglang #10846, #16964",
    twin="verify-settles",
)
def draft_kv_is_true(step: Step, req: ReqView) -> Finding:
    """A settled forward has left the draft's own KV for every committed position."""
    device = step.after.device
    if device is None or device.draft_v1 is None:
        return Verdict.UNKNOWN
    if not is_live(req):
        return None
    due = min(settled_len(step, req), len(req.slots))
    if due <= 0:
        return None
    rid, draft_v1 = req.rid, device.draft_v1
    look = judged(step, "draft-judged", rid)
    if look.is_same(req, due, draft_v1):
        return None
    text = step.ledger.requests[rid].text
    if len(text.cells1) <= due:
        text.target_cell(due)
    found, wanted = look.read(draft_v1), text.cells1[1 : due + 1]
    if found == wanted:
        return HOLDS
    return wrong_cell("draft KV", rid, look.slots, found, wanted, "its launch is settled")


@oracle(
    "worker-keeps-off-the-ledger",
    formula="every write to a host ledger or clock comes from the function that owns the field",
    clock=Clock.HOST,
    owner=Owner.SPEC_WORKER,
    scope=Scope.RUN,
    needs=Capability.WRITE_RECORDS,
    source="sglang 0.5.23 managers/schedule_batch ReqKvInfo; sglang #23456",
    twin="result-settles",
)
def worker_keeps_off_the_ledger(step: Step) -> Finding:
    """A worker returns lengths; only the scheduler's allocation and the result processor write them down."""
    writes = step.after.writes
    if writes is None:
        return Verdict.UNKNOWN
    if not writes:
        return None
    for write in writes:
        if write.new and not is_owner(write.field, write.writer):  # writing 0 is a reset
            return Clash(
                f"writer of {write.field} = {write.writer} in {sorted(OWNERS[write.field])}",
                f"{write.writer} set {write.field}({write.rid}) from {write.old} to {write.new}",
                f"only {', '.join(sorted(OWNERS[write.field]))} may write it",
            )
    return HOLDS
