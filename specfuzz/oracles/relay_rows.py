"""Rules on the relay's rows at rest: what the next round will find for a request of which nothing is in flight."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Idle, Settle
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import RelayRow, RelayView, ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import carrying, is_live
from specfuzz.oracles.spec_tree import first_proposals

HOLDS = Verdict.HOLDS
SPECULATIVE_OVERLAP = Capability.SPECULATIVE | Capability.OVERLAP


def _resting(step: Step, relay: RelayView) -> dict[str, tuple[RelayRow, int]]:
    """By rid, relay row and settled frontier of the live requests of which nothing is in flight any more."""
    known: tuple[int, dict[str, tuple[RelayRow, int]]] | None = step.memo.get("resting")
    if known is not None and known[0] == step.index:
        return known[1]
    ledger, reqs = step.ledger, step.after.reqs
    found: dict[str, tuple[RelayRow, int]] = {}
    for rid, row in relay.rows.items():
        req = reqs.get(rid)
        if req is None or not is_live(req) or not ledger.requests[rid].extend_settled:
            continue
        if carrying(step, rid):
            continue  # the forward in flight consumes the row and writes it again
        found[rid] = (row, req.seqlen - 1)
    step.memo["resting"] = (step.index, found)
    return found


@oracle(
    "relay-holds-the-frontier",
    formula="nothing of the request in flight: new_seq_lens_buf[row] == seqlen - 1",
    clock=Clock.RELAY,
    owner=Owner.FUTURE_MAP,
    scope=Scope.REQUEST,
    needs=Capability.RELAY_VIEW | SPECULATIVE_OVERLAP,
    on=(Settle, Idle),
    source="sglang 0.5.23 managers/overlap_utils FutureMap.publish",
    twin="verify-settles",
)
def relay_holds_the_frontier(step: Step, req: ReqView) -> Finding:
    """A settled round has published its frontier, and nobody has consumed it yet."""
    relay = step.after.relay
    if relay is None:
        return Verdict.UNKNOWN
    found = _resting(step, relay).get(req.rid)
    if found is None:
        return None
    row, length = found
    if row.new_seq_len == length:
        return HOLDS
    return Clash(
        f"new_seq_lens_buf[{row.row}] = {row.new_seq_len} == {length}",
        f"relay row {row.row} of {req.rid} holds the frontier {row.new_seq_len}",
        f"its last forward is settled at {length}",
    )


@oracle(
    "relay-holds-the-pending-token",
    formula="nothing of the request in flight: output_tokens_buf[row] == output_ids[-1]",
    clock=Clock.RELAY,
    owner=Owner.FUTURE_MAP,
    scope=Scope.REQUEST,
    needs=Capability.RELAY_VIEW | Capability.OVERLAP,
    on=(Settle, Idle),
    source="sglang 0.5.23 managers/overlap_utils FutureMap.stash; vLLM #30916",
    twin="result-settles",
)
def relay_holds_the_pending_token(step: Step, req: ReqView) -> Finding:
    """A settled round has stashed the token that the next one will feed."""
    relay = step.after.relay
    if relay is None:
        return Verdict.UNKNOWN
    found = _resting(step, relay).get(req.rid)
    if found is None:
        return None
    row, _length = found
    wanted = req.output_ids[-1] if req.output_ids else None
    if row.output_token == wanted:
        return HOLDS
    return Clash(
        f"output_tokens_buf[{row.row}] = {row.output_token} == {wanted}",
        f"relay row {row.row} of {req.rid} holds the token {row.output_token}",
        f"the last token that its last forward decided is {wanted}",
    )


@oracle(
    "relay-holds-the-draft-state",
    formula=(
        "nothing of the request in flight: hidden_states_buf[row] == O(C) and "
        "topk_index_buf[row] == the token it proposes (of a tree: all its seeds)"
    ),
    clock=Clock.RELAY,
    owner=Owner.FUTURE_MAP,
    scope=Scope.REQUEST,
    needs=Capability.RELAY_VIEW | SPECULATIVE_OVERLAP | Capability.DRAFT_EXTRAS,
    on=(Settle, Idle),
    source="sglang 0.5.23 managers/overlap_utils FutureMap.stash; sglang #9976",
    twin="verify-settles",
)
def relay_holds_the_draft_state(step: Step, req: ReqView) -> Finding:
    """A settled round has stashed the whole draft state, so that the next draft starts from it."""
    relay = step.after.relay
    if relay is None:
        return Verdict.UNKNOWN
    found = _resting(step, relay).get(req.rid)
    if found is None:
        return None
    row, length = found
    hidden = step.ledger.requests[req.rid].text.hidden(length)
    wanted = first_proposals(step, req.rid, length, hidden)
    topk = (row.topk_index,) if step.config.topk == 1 else row.topk_seeds
    if topk is None:
        return Verdict.UNKNOWN
    if row.hidden == hidden and topk == wanted:
        return HOLDS
    return Clash(
        f"(hidden, *topk_index)[{row.row}] = {(row.hidden, *topk)} == {(hidden, *wanted)}",
        f"relay row {row.row} of {req.rid} holds the draft state {(row.hidden, *topk)}",
        f"a draft that has consumed the bonus at position {length} holds {(hidden, *wanted)}",
    )
