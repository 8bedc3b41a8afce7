"""Clauses about answers: every legal event gets one, and what a receipt says is what the snapshots show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from specfuzz.conformance.clauses import Answer, Clause, Evidence, broken, clause, holds, place, unjudged
from specfuzz.conformance.runs import Moment
from specfuzz.core.asked import Standing
from specfuzz.core.event import Idle, Mix, Prefill, Prepare, Settle, Verify
from specfuzz.core.legality import Ledger
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot


@clause("every-legal-event-is-answered")
def every_legal_event_is_answered(evidence: Evidence) -> Answer:
    """Every legal event is accepted, or refused with a reason; none raises."""
    if not evidence.runs[0].events and not evidence.stops:
        return unjudged("no event was applied")
    if evidence.stops:
        return broken(evidence.stops[0])
    for run in evidence.runs:
        for index, receipt in enumerate(run.receipts):
            if receipt.refused is not None and not receipt.refused.strip():
                return broken(f"{place(run, index)}: refused without a reason")
    return holds(
        f"{evidence.events} events in {evidence.plays} runs, {evidence.refusals} of them refused with a reason"
    )


@clause("a-refusal-changes-nothing")
def a_refusal_changes_nothing(evidence: Evidence) -> Answer:
    """A refused event leaves every request, pool, queue, relay row and memory cell as it was, and decides nothing.

    Not judged while a prompt is in by half: the head of the scheduling step, which comes before the refusal, hands its
    chunk to the tree or drops it.
    """
    refusals = 0
    for run in evidence.runs:
        chunked = False
        for index, (moment, ledger) in enumerate(run.steps()):
            halfway, chunked = chunked, any(one.standing is Standing.CHUNKED for one in ledger.requests.values())
            if moment.receipt.refused is None or halfway:
                continue
            refusals += 1
            if replace(moment.receipt, refused=None, executed=0) != Receipt():
                return broken(f"{place(run, index)}: a refusal that decides something: {moment.receipt}")
            changed = _changed_by_refusal(moment)
            if changed:
                return broken(f"{place(run, index)}: refused ({moment.receipt.refused}), but {changed} changed")
    if not refusals:
        return unjudged("nothing was refused, also with more requests than rows")
    return holds(f"{refusals} refusals")


def _changed_by_refusal(moment: Moment) -> str | None:
    before, after = _in_substance(moment.before), _in_substance(moment.after)
    return next((f.name for f in fields(Snapshot) if getattr(before, f.name) != getattr(after, f.name)), None)


def _in_substance(state: Snapshot) -> Snapshot:
    """The snapshot without what a refused prefill may do on the way, since SGLang does it before it declines.

    The extend that was launched last joins the running batch, which is device work to do; and the request that can't
    be admitted has its prefix looked up.
    """
    return replace(
        state, running=(), batches=(), launches=(), writes=None, races=None, on_idle=False,
        reqs={
            rid: replace(req, cache_protected_len=0) if req.req_pool_idx is None else req
            for rid, req in state.reqs.items()
        },
        relay=None if state.relay is None else replace(state.relay, quiet=False),
        device=None if state.device is None else replace(state.device, pending=0),
    )  # fmt: skip


def _agreement(name: str, wrong: Callable[[Moment, Ledger], str | None]) -> Clause:
    """A clause that every moment must keep; wrong: what is wrong with one, given the ledger after it."""

    def judge(evidence: Evidence) -> Answer:
        moments = 0
        for run in evidence.runs:
            for index, (moment, ledger) in enumerate(run.steps()):
                moments += 1
                text = wrong(moment, ledger)
                if text:
                    return broken(f"{place(run, index)}: {text}")
        return holds(f"{moments} events") if moments else unjudged("no event was applied")

    return Clause(name=name, rule=(wrong.__doc__ or "").strip().splitlines()[0], judge=judge)


@clause("launches-are-numbered-in-order")
def launches_are_numbered_in_order(evidence: Evidence) -> Answer:
    """Launches are numbered from 1 without gaps, results are settled oldest first, and the queue is what is left."""
    launches = 0
    for run in evidence.runs:
        newest = 0
        for index, (moment, ledger) in enumerate(run.steps()):
            wrong = _wrong_numbers(moment, ledger, newest)
            if wrong:
                return broken(f"{place(run, index)}: {wrong}")
            newest = ledger.launches
        launches += newest
    return holds(f"{launches} launches") if launches else unjudged("nothing was launched")


def _wrong_numbers(moment: Moment, ledger: Ledger, newest: int) -> str | None:
    event, receipt, before = moment.event, moment.receipt, moment.before.queue
    launching = isinstance(event, Verify | Prefill | Mix) and receipt.refused is None
    if receipt.launch != (newest + 1 if launching else None):
        return f"launch {receipt.launch} behind launch {newest}"
    due = before[:1] if isinstance(event, Settle) else before if isinstance(event, Idle) else ()
    if tuple(launched.number for launched in ledger.settled) != due or receipt.settled != (due[-1] if due else None):
        return f"the receipt settles {receipt.settled}, due are {due} of {before}"
    queue = tuple(launched.number for launched in ledger.in_flight)
    return None if moment.after.queue == queue else f"the queue is {moment.after.queue}, in flight are {queue}"


def _requests_are_shown(moment: Moment, ledger: Ledger) -> str | None:
    """A snapshot has every request ever submitted, in that order and as it was asked for, where the ledger puts it."""
    reqs = moment.after.reqs
    if list(reqs) != list(ledger.requests):
        return f"requests are {list(reqs)}, submitted were {list(ledger.requests)}"
    for rid, asked in ledger.requests.items():
        shown = reqs[rid].rid, reqs[rid].prompt_len, reqs[rid].max_new
        if shown != (rid, asked.submit.prompt_len, asked.submit.max_new):
            return f"{rid} is shown as {shown}"
        if (rid in moment.after.waiting) != (asked.standing is Standing.WAITING):
            return f"{rid} is {asked.standing}, and the waiting queue is {moment.after.waiting}"
        if (reqs[rid].req_pool_idx is None) != (asked.standing in (Standing.WAITING, Standing.FINISHED)):
            return f"{rid} is {asked.standing} and has row {reqs[rid].req_pool_idx}"
    return None


def _emitted_is_new_output(moment: Moment, _ledger: Ledger) -> str | None:
    """What a receipt emits is exactly what output_ids gained, for every request."""
    emitted = dict(moment.receipt.emitted)
    for rid in emitted:
        if rid not in moment.after.reqs:
            return f"tokens of {rid} are emitted, and it isn't shown"
    for rid, req in moment.after.reqs.items():
        old = moment.before.reqs[rid].output_ids if rid in moment.before.reqs else ()
        if req.output_ids != old + emitted.get(rid, ()):
            return f"{rid} has {len(old)} + {len(emitted.get(rid, ()))} tokens by receipt, {len(req.output_ids)} shown"
    return None


def _finished_is_shown(moment: Moment, _ledger: Ledger) -> str | None:
    """Who finishes by receipt, why and at which length, is who has finished since the last snapshot."""
    before = moment.before.reqs
    shown = {
        rid: (req.finished_reason, req.finished_len)
        for rid, req in moment.after.reqs.items()
        if req.finished and not (rid in before and before[rid].finished)
    }
    told = {rid: (reason, length) for rid, reason, length in moment.receipt.finished}
    return None if shown == told else f"finished by receipt: {told}; shown: {shown}"


def _retracted_is_shown(moment: Moment, _ledger: Ledger) -> str | None:
    """Who is retracted by receipt has lost its row and progress, waits again and counts one retraction more."""
    ended = {rid for rid, _reason, _length in moment.receipt.finished}
    for rid, req in moment.after.reqs.items():
        if rid in ended:
            continue  # the last request that memory is too short for is released like a retracted one, and aborted
        old = moment.before.reqs.get(rid)
        times = req.retraction_count - (old.retraction_count if old is not None else 0)
        if times != moment.receipt.retracted.count(rid):
            return f"{rid} counts {times} retractions more, the receipt has {moment.receipt.retracted}"
        if times and not (req.is_retracted and req.req_pool_idx is None and req.kv_committed_len == 0):
            return f"{rid} is retracted and has row {req.req_pool_idx}, kv_committed_len {req.kv_committed_len}"
    return None


def _batches_are_shown(moment: Moment, _ledger: Ledger) -> str | None:
    """The rows of a receipt are the prepared batch; a launch takes it over; who is admitted holds a row."""
    event, receipt, after = moment.event, moment.receipt, moment.after
    if isinstance(event, Prepare) and receipt.refused is None and (after.prepared or ()) != receipt.rows:
        return f"the receipt prepares {receipt.rows}, shown is {after.prepared}"
    if isinstance(event, Verify) and (receipt.rows != moment.before.prepared or after.prepared is not None):
        return f"prepared was {moment.before.prepared}, launched {receipt.rows}, prepared is now {after.prepared}"
    for rid, prefix, extend in receipt.admitted:
        req = after.reqs[rid]
        if req.req_pool_idx is None or extend < 1 or prefix + extend > req.seqlen or rid not in receipt.rows:
            return f"{rid} is admitted with {prefix} + {extend} of {req.seqlen} tokens, row {req.req_pool_idx}"
    return None


#: `every_legal_event_is_answered` is none of them: it speaks about all runs of the kit, and comes behind them.
CLAUSES = (
    a_refusal_changes_nothing,
    launches_are_numbered_in_order,
    _agreement("every-request-is-shown", _requests_are_shown),
    _agreement("emitted-is-the-new-output", _emitted_is_new_output),
    _agreement("finished-is-shown", _finished_is_shown),
    _agreement("retracted-is-shown", _retracted_is_shown),
    _agreement("batches-are-shown", _batches_are_shown),
)
