"""Rules that bind the observer itself: a receipt says exactly what the snapshots show."""

from __future__ import annotations

from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Abort, Idle, Prepare, Settle
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.verdict import Clash, Finding, Verdict

HOLDS = Verdict.HOLDS


@oracle(
    "receipt-tells-the-truth",
    formula="receipt.emitted == growth of output_ids, receipt.finished == requests that became finished",
    clock=Clock.HOST,
    owner=Owner.RECORDER,
    scope=Scope.RUN,
    on=(Settle, Idle, Abort, Prepare),
    source="sglang 0.5.23 managers/scheduler_components/batch_result_processor process_batch_result_decode",
    twin="result-settles",
)
def receipt_tells_the_truth(step: Step) -> Finding:
    """What the engine reports about an event is what changed on its requests."""
    emitted: dict[str, tuple[int, ...]] = {}
    for rid, tokens in step.receipt.emitted:
        emitted[rid] = emitted.get(rid, ()) + tuple(tokens)
    finished = {rid: (reason, length) for rid, reason, length in step.receipt.finished}
    known, judged = step.before.reqs, bool(emitted or finished)
    for rid, req in step.after.reqs.items():
        before = known.get(rid)
        if before is req or before is None:
            said: tuple[int, ...] = emitted.get(rid, ())
            if said or rid in finished:
                return Clash(
                    f"emitted({rid}) = {said}, finished = {finished.get(rid)}",
                    f"the receipt says that {rid} emitted {len(said)} tokens or finished",
                    "its record did not change",
                )
            continue
        grown = req.output_ids[len(before.output_ids) :]
        ended = (req.finished_reason, req.finished_len) if req.finished and not before.finished else None
        if grown != emitted.get(rid, ()) or ended != finished.get(rid):
            return Clash(
                f"emitted({rid}) = {emitted.get(rid, ())} == {grown}, finished({rid}) = {finished.get(rid)} == {ended}",
                f"the receipt says that {rid} emitted {emitted.get(rid, ())} and ended as {finished.get(rid)}",
                f"its output grew by {grown} and it ended as {ended}",
            )
        judged = True
    return HOLDS if judged else None
