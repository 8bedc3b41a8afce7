"""Reachable goals: what a run should have met at least once, so that an oracle that held had something to judge."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.event import Abort, Event, Idle, Mix, Prefill, Prepare, Retract, Settle, Verify
from specfuzz.core.language import STOP_TOKEN
from specfuzz.core.oracle import Step, reachable
from specfuzz.oracles.facts import DEVICE_EVENTS, LEDGER_EVENTS, is_dead, is_live

LAUNCHES = Capability.LAUNCH_VIEW
#: Events that may finish a request; a prepare does when memory is too short for a single one.
FINISHING: tuple[type[Event], ...] = (Settle, Idle, Abort, Prepare, Mix)


@reachable("launch", on=(Prefill, Mix, Verify))
def launch(step: Step) -> bool:
    """A forward is launched."""
    return step.receipt.launch is not None


@reachable("prepare", on=(Prepare,))
def prepare(step: Step) -> bool:
    """A decode batch with at least one row is prepared."""
    return bool(step.receipt.rows)


@reachable("prepare-behind-the-device", needs=Capability.OVERLAP, on=(Prepare,))
def prepare_behind_the_device(step: Step) -> bool:
    """A decode is prepared while a result that carries one of its rows is unsettled."""
    return bool(step.ledger.in_flight) and not set(step.ledger.in_flight[-1].rids).isdisjoint(step.receipt.rows)


@reachable("two-rows-in-a-batch", on=(Verify,))
def two_rows_in_a_batch(step: Step) -> bool:
    """A decode with at least two rows is launched."""
    return len(step.receipt.rows) > 1


@reachable("device-leads-host", needs=LAUNCHES | Capability.OVERLAP | Capability.SPECULATIVE, on=DEVICE_EVENTS)
def device_leads_host(step: Step) -> bool:
    """A verify starts at a length that the host has not settled yet."""
    for view in step.after.launches:
        if view.entry_now and view.unsettled_before and view.mode == "DECODE" and view.entry is not None:
            return any(there > here for there, here in zip(view.entry.seq_lens, view.committed, strict=True))
    return False


@reachable("published-before-settled", needs=LAUNCHES | Capability.OVERLAP | Capability.LAZY_DEVICE, on=DEVICE_EVENTS)
def published_before_settled(step: Step) -> bool:
    """A forward's frontier is known while its result waits."""
    for view in step.after.launches:
        if view.published and not view.settled:
            return True
    return False


@reachable("result-settles", on=(Settle, Idle))
def result_settles(step: Step) -> bool:
    """A result is processed."""
    return bool(step.ledger.settled)


@reachable("verify-settles", on=(Settle, Idle))
def verify_settles(step: Step) -> bool:
    """The result of a decode is processed."""
    for known in step.ledger.settled:
        if known.mode == "DECODE":
            return True
    return False


@reachable("dead-row-settles", needs=Capability.OVERLAP, on=(Settle, Idle))
def dead_row_settles(step: Step) -> bool:
    """A result is processed that carries a request which finished or was retracted before."""
    reqs = step.before.reqs
    for known in step.ledger.settled:
        for rid in known.rids:
            if is_dead(reqs[rid]):
                return True
    return False


@reachable("run-of-several-tokens", needs=Capability.SPECULATIVE, on=(Settle, Idle))
def run_of_several_tokens(step: Step) -> bool:
    """A settled verify emits more than one token."""
    for _rid, tokens in step.receipt.emitted:
        if len(tokens) > 1:
            return True
    return False


@reachable("finish", on=FINISHING)
def finish(step: Step) -> bool:
    """A request finishes."""
    return bool(step.receipt.finished)


@reachable("finish-by-length", on=FINISHING)
def finish_by_length(step: Step) -> bool:
    """A request finishes at its cap."""
    for _rid, reason, _length in step.receipt.finished:
        if reason == "length":
            return True
    return False


def _stops(step: Step) -> list[tuple[int, int, int, int]]:
    """(stop length, outputs before, outputs after, cap) of every request that this event finishes by its stop token."""
    found = []
    for rid, reason, length in step.receipt.finished:
        if reason == "stop" and length is not None:
            old, req = step.before.reqs[rid], step.after.reqs[rid]
            found.append((length, len(old.output_ids), len(req.output_ids), req.max_new))
    return found


@reachable("finish-inside-a-run", needs=Capability.SPECULATIVE, on=(Settle,))
def finish_inside_a_run(step: Step) -> bool:
    """A stop token is followed by further accepted tokens of its run."""
    return bool(step.receipt.finished) and any(length < after for length, _before, after, _cap in _stops(step))


@reachable("finish-at-first-token-of-a-run", needs=Capability.SPECULATIVE, on=(Settle,))
def finish_at_first_token_of_a_run(step: Step) -> bool:
    """The first token of a longer run is the stop token."""
    if not step.receipt.finished:
        return False
    return any(length == before + 1 < after for length, before, after, _cap in _stops(step))


@reachable("finish-at-last-token-of-a-run", needs=Capability.SPECULATIVE, on=(Settle,))
def finish_at_last_token_of_a_run(step: Step) -> bool:
    """The last token of a longer run is the stop token."""
    if not step.receipt.finished:
        return False
    return any(length == after > before + 1 for length, before, after, _cap in _stops(step))


@reachable("stop-and-length-in-one-run", needs=Capability.SPECULATIVE, on=(Settle,))
def stop_and_length_in_one_run(step: Step) -> bool:
    """One run holds the stop token and reaches the cap."""
    if not step.receipt.finished:
        return False
    return any(length < cap <= after for length, _before, after, cap in _stops(step))


@reachable("stop-behind-the-cap", needs=Capability.SPECULATIVE, on=(Settle,))
def stop_behind_the_cap(step: Step) -> bool:
    """A run crosses the cap and holds the stop token behind it."""
    for rid, reason, _length in step.receipt.finished:
        if reason == "length" and STOP_TOKEN in step.after.reqs[rid].output_ids:
            return True
    return False


@reachable("retraction", on=(Retract, Prepare, Mix))
def retraction(step: Step) -> bool:
    """A request is retracted."""
    return bool(step.receipt.retracted)


@reachable("retraction-with-a-result-in-flight", needs=Capability.OVERLAP, on=(Retract, Prepare, Mix))
def retraction_with_a_result_in_flight(step: Step) -> bool:
    """A request is retracted while a forward carries it."""
    if not step.receipt.retracted:
        return False
    return any(rid in known.rids for known in step.ledger.in_flight for rid in step.receipt.retracted)


@reachable("resume-after-retraction", on=(Prefill, Mix))
def resume_after_retraction(step: Step) -> bool:
    """A retracted request is admitted again."""
    for rid, _prefix, _extend in step.receipt.admitted:
        if step.before.reqs[rid].retraction_count:
            return True
    return False


@reachable("abort-in-flight", needs=Capability.OVERLAP, on=(Abort,))
def abort_in_flight(step: Step) -> bool:
    """A request is aborted while a forward carries it."""
    if type(step.event) is not Abort:
        return False
    rid = step.event.rid
    return is_live(step.before.reqs[rid]) and any(rid in known.rids for known in step.ledger.in_flight)


@reachable("abort-while-waiting", on=(Abort,))
def abort_while_waiting(step: Step) -> bool:
    """A waiting request is aborted."""
    return type(step.event) is Abort and step.before.reqs[step.event.rid].req_pool_idx is None


@reachable("prefix-hit", needs=Capability.RADIX, on=(Prefill, Mix))
def prefix_hit(step: Step) -> bool:
    """A request is admitted with a prefix from the tree."""
    for _rid, prefix, _extend in step.receipt.admitted:
        if prefix:
            return True
    return False


@reachable("tree-holds-output", needs=Capability.RADIX | Capability.TREE_VIEW, on=FINISHING)
def tree_holds_output(step: Step) -> bool:
    """A finished request leaves a path in the tree."""
    return bool(step.receipt.finished) and bool(step.after.pool.cached)


@reachable("page-boundary-crossed", needs=Capability.PAGED, on=(Settle, Idle))
def page_boundary_crossed(step: Step) -> bool:
    """A settled run ends in another page than it began in."""
    size = step.config.page_size
    for rid, tokens in step.receipt.emitted:
        end = step.after.reqs[rid].seqlen - 1
        if end // size != (end - len(tokens)) // size:
            return True
    return False


@reachable("batch-shrinks", on=(Prepare,))
def batch_shrinks(step: Step) -> bool:
    """A row leaves the running batch before the next decode is prepared."""
    return not set(step.before.running).issubset(step.receipt.rows)


@reachable("row-reused", on=(Prefill, Mix))
def row_reused(step: Step) -> bool:
    """A request is given a row that another one held before."""
    last: dict[int, str] = step.memo.setdefault("row-holders", {})
    reused = False
    for rid, _prefix, _extend in step.receipt.admitted:
        row = step.after.reqs[rid].req_pool_idx
        if row is not None:
            reused = reused or last.get(row, rid) != rid
            last[row] = rid
    return reused


@reachable("work-pending", needs=Capability.LAZY_DEVICE | Capability.DEVICE_VIEW, on=LEDGER_EVENTS)
def work_pending(step: Step) -> bool:
    """A host event ends while the device still has work."""
    device = step.after.device
    return device is not None and device.pending > 0


@reachable("idle-and-empty", on=(Idle,))
def idle_and_empty(step: Step) -> bool:
    """The idle checks run when every request has left."""
    reqs = step.after.reqs
    return bool(reqs) and all(req.req_pool_idx is None for req in reqs.values())


@reachable("mixed-launch", needs=Capability.MIXED_CHUNK, on=(Mix,))
def mixed_launch(step: Step) -> bool:
    """A prefill is launched with running rows as one-token tails."""
    return step.receipt.mode == "MIXED"


@reachable("mixed-tail-behind-a-verify", needs=Capability.MIXED_CHUNK | Capability.OVERLAP, on=(Mix,))
def mixed_tail_behind_a_verify(step: Step) -> bool:
    """A tail is mixed in while the round that decides where it stands is unsettled."""
    if step.receipt.mode != "MIXED" or len(step.ledger.in_flight) < 2:
        return False
    earlier = step.ledger.in_flight[-2]
    return earlier.mode == "DECODE" and not set(earlier.rids).isdisjoint(step.receipt.rows)


@reachable("mixed-tail-settles", needs=Capability.MIXED_CHUNK, on=(Settle, Idle))
def mixed_tail_settles(step: Step) -> bool:
    """The result of a MIXED launch gives a tail its token."""
    emitted = {rid for rid, _tokens in step.receipt.emitted}
    for known in step.ledger.settled:
        if known.mode == "MIXED" and any(rid in emitted for rid in known.rids if rid not in known.extended):
            return True
    return False


@reachable("chunk-goes-on", needs=Capability.CHUNKED_PREFILL, on=(Prefill, Mix))
def chunk_goes_on(step: Step) -> bool:
    """A prompt that was launched in part goes on."""
    return any(step.before.reqs[rid].req_pool_idx is not None for rid, _prefix, _extend in step.receipt.admitted)


@reachable("middle-chunk-settles", needs=Capability.CHUNKED_PREFILL, on=(Settle, Idle))
def middle_chunk_settles(step: Step) -> bool:
    """The result of a chunk that isn't the last one is processed."""
    return any(known.middle for known in step.ledger.settled)


@reachable("decode-between-chunks", needs=Capability.CHUNKED_PREFILL, on=(Verify,))
def decode_between_chunks(step: Step) -> bool:
    """A decode is launched while a prompt is in by half."""
    return step.ledger.chunked() is not None


@reachable("abort-between-chunks", needs=Capability.CHUNKED_PREFILL, on=(Prefill, Mix, Prepare, Retract, Idle))
def abort_between_chunks(step: Step) -> bool:
    """A request is aborted while its prompt is in by half, and dropped by the next scheduling step."""
    return any(step.ledger.requests[rid].dropping for rid, _reason, _length in step.receipt.finished)
