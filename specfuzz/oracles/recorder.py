"""Rules that bind the observer itself: a receipt says exactly what the snapshots show."""

from __future__ import annotations

from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import LEDGER_EVENTS

HOLDS = Verdict.HOLDS


@oracle(
    "receipt-tells-the-truth",
    formula="receipt.emitted == growth of output_ids, receipt.finished == requests that became finished",
    clock=Clock.HOST,
    owner=Owner.RECORDER,
    scope=Scope.RUN,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 managers/scheduler_components/batch_result_processor process_batch_result_decode",
    twin="result-settles",
)
def receipt_tells_the_truth(step: Step) -> Finding:
    """What the engine reports about an event is what changed on its requests."""
    receipt = step.receipt
    emitted: dict[str, tuple[int, ...]] = {}
    for rid, tokens in receipt.emitted:
        if tokens:
            emitted[rid] = emitted.get(rid, ()) + tuple(tokens)
    finished = {rid: (reason, length) for rid, reason, length in receipt.finished} if receipt.finished else {}
    finding: Finding = HOLDS if emitted or finished else None
    known = step.before.reqs
    for rid, req in step.after.reqs.items():
        before = known.get(rid)
        if before is not req and before is not None:
            clash = _differs(before, req, emitted.pop(rid, ()), finished.pop(rid, None))
            if clash is not None:
                return clash
            finding = HOLDS
    for rid in (*emitted, *finished):
        return Clash(
            f"emitted({rid}) = {emitted.get(rid, ())}, finished = {finished.get(rid)}",
            f"the receipt says that {rid} emitted {len(emitted.get(rid, ()))} tokens or finished",
            "its record did not change",
            rid=rid,
        )
    return finding


def _differs(
    before: ReqView, req: ReqView, said: tuple[int, ...], finished: tuple[str, int | None] | None
) -> Clash | None:
    grown = req.output_ids[len(before.output_ids) :]
    now_over = req.finished_reason is not None and before.finished_reason is None
    ended = (req.finished_reason, req.finished_len) if now_over else None
    if grown == said and ended == finished:
        return None
    rid = req.rid
    return Clash(
        f"emitted({rid}) = {said} == {grown}, finished({rid}) = {finished} == {ended}",
        f"the receipt says that {rid} emitted {said} and ended as {finished}",
        f"its output grew by {grown} and it ended as {ended}",
    )
