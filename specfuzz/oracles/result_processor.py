"""Rules that result processing must keep: what a settled result changes on its rows, and nothing else. Host clock."""

from __future__ import annotations

from specfuzz.core.asked import Standing
from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Idle, Settle
from specfuzz.core.language import STOP_TOKEN
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import LEDGER_EVENTS, is_dead, is_live, limits, lived_rows, retained, settled_rows, view_of

HOLDS = Verdict.HOLDS
#: What a result must leave alone on a dead row.
INERT_FIELDS = (
    "output_ids", "kv_committed_len", "kv_allocated_len", "cache_protected_len", "req_pool_idx", "spec_verify_ct",
    "spec_num_correct_drafts", "finished_reason", "finished_len", "retraction_count",
)  # fmt: skip


def _was_live(step: Step, rid: str) -> ReqView | None:
    before = step.before.reqs.get(rid)
    return before if before is not None and is_live(before) else None


@oracle(
    "steady-bonus",
    formula=(
        "live speculative request past its extend: seqlen == kv_committed_len + "
        "1; last extend pending: seqlen == kv_committed_len"
    ),
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.REQUEST,
    needs=Capability.SPECULATIVE,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 managers/scheduler_components/batch_result_processor _resolve_spec_v2_tokens; sglang #24590",
    twin="verify-settles",
)
def steady_bonus(step: Step, req: ReqView) -> Finding:
    """Exactly one token of a settled request has no KV yet: the pending bonus."""
    if req.finished_reason is not None or req.is_retracted or req.req_pool_idx is None:
        return None
    ledger, rid = step.ledger, req.rid
    if not ledger.settled and step.before.reqs.get(rid) is req:
        return None  # nothing that the rule speaks about has moved
    asked = ledger.requests[rid]
    if asked.standing is Standing.CHUNKED:
        return None  # a chunk ends anywhere
    pending = 1 if asked.extend_settled else 0
    if req.prompt_len + len(req.output_ids) == req.kv_committed_len + pending:
        return HOLDS
    return Clash(
        f"{req.seqlen} == {req.kv_committed_len} + {pending}",
        f"{req.rid} has {req.seqlen} settled tokens ({req.prompt_len} prompt, {len(req.output_ids)} output)",
        f"its kv_committed_len is {req.kv_committed_len} and its extend is {'settled' if pending else 'pending'}",
    )


@oracle(
    "commit-equals-emitted",
    formula=(
        "settled live rows: growth of kv_committed_len == growth of output_ids - extends (speculative; a mixed tail "
        "that it finishes commits nothing), == 0 (plain)"
    ),
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.REQUEST,
    on=(Settle, Idle),
    source="sglang 0.5.23 managers/scheduler_components/batch_result_processor _resolve_spec_v2_tokens; sglang #22897",
    twin="run-of-several-tokens",
)
def commit_equals_emitted(step: Step, req: ReqView) -> Finding:
    """A run is committed and appended as a whole; a stop trims only what the client sees."""
    before = _was_live(step, req.rid) if req.rid in settled_rows(step) else None
    if before is None:
        return None
    grown = len(req.output_ids) - len(before.output_ids)
    rows = lived_rows(step, req, grown)
    if rows is None:
        return Verdict.UNKNOWN
    extends = 0
    for known, _row in rows:
        extends += req.rid in known.extended and req.rid not in known.middle
    last = rows[-1][0]
    ended = req.finished and last.mode == "MIXED" and req.rid not in last.extended  # such a tail is not committed
    wanted = grown - extends - ended if limits(step).speculative else 0
    found = req.kv_committed_len - before.kv_committed_len
    if found == wanted:
        return HOLDS
    return Clash(
        f"{req.kv_committed_len} - {before.kv_committed_len} == {wanted}",
        f"{len(rows)} results of {req.rid} appended {grown} tokens, {extends} of them sampled by an extend",
        f"kv_committed_len moved by {found}",
    )


@oracle(
    "settle-appends-the-run",
    formula=(
        "growth of output_ids == next_tokens of the settled launches, until one of them finishes the request or its "
        "grammar"
    ),
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.REQUEST,
    needs=Capability.LAUNCH_VIEW,
    on=(Settle, Idle),
    source=(
        "sglang 0.5.23 managers/scheduler_components/batch_result_processor process_batch_result_decode; vLLM #42117"
    ),
    twin="run-of-several-tokens",
)
def settle_appends_the_run(step: Step, req: ReqView) -> Finding:
    """A live row gets every token of its result, once and in order."""
    rows = settled_rows(step).get(req.rid)
    before = None if rows is None else _was_live(step, req.rid)
    if rows is None or before is None:
        return None
    run: list[int] = []
    ends: list[int] = []
    for known, row in rows:
        launch = view_of(step.after.launches, known.number)
        if launch is None or launch.exit is None or row >= len(launch.exit.next_tokens):
            return Verdict.UNKNOWN
        if req.rid in known.middle:
            continue  # a middle chunk samples nothing
        run += retained(step, req.rid, launch.exit.next_tokens[row])
        ends.append(len(run))
    old = len(before.output_ids)
    grown = list(req.output_ids[old:])
    whole = (len(grown) in (ends or [0])) if req.finished else (len(grown) == len(run))
    if whole and grown == run[: len(grown)] and req.output_ids[:old] == before.output_ids:
        return HOLDS
    return Clash(
        f"{grown} == {run}",
        f"the device decided the run {run} for {req.rid}, as far as its grammar goes",
        f"output_ids grew from {old} to {len(req.output_ids)} tokens by {grown}",
    )


@oracle(
    "dead-rows-are-inert",
    formula="finished or retracted before the settle => every ledger field unchanged by it",
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.RUN,
    on=(Settle, Idle),
    source="sglang 0.5.23 managers/scheduler_components/batch_result_processor _resolve_spec_v2_tokens; sglang #23456",
    twin="dead-row-settles",
)
def dead_rows_are_inert(step: Step) -> Finding:
    """A late result must not move a request that has left in the meantime."""
    finding: Finding = None
    for known in step.ledger.settled:
        for rid in known.rids:
            before = step.before.reqs[rid]
            if not is_dead(before):
                continue
            after = step.after.reqs[rid]
            if after is not before:
                for name in INERT_FIELDS:
                    old, new = getattr(before, name), getattr(after, name)
                    if old != new:
                        return Clash(
                            f"{name}({rid}) = {new} == {old}",
                            f"{rid} was {'finished' if before.finished else 'retracted'} before result {known.number} "
                            "was processed",
                            f"processing it changed {name} from {old} to {new}",
                            rid=rid,
                        )
            finding = HOLDS
    return finding


@oracle(
    "finish-reason-is-first",
    formula="reason = first of {asked abort, stop token at its index below the cap, cap} that the settled output meets",
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.REQUEST,
    on=(Settle, Idle),
    changed_only=True,
    source="sglang 0.5.23 managers/schedule_batch Req.update_finish_state; sglang #31599",
    twin="finish",
)
def finish_reason_is_first(step: Step, req: ReqView) -> Finding:
    """A request ends at the first condition that it meets, and only there."""
    before = _was_live(step, req.rid)
    if before is None or len(req.output_ids) == len(before.output_ids):
        return None
    asked = step.ledger.requests[req.rid]
    count = len(req.output_ids)
    wanted: tuple[str | None, int | None] = (None, None)
    if asked.aborted:
        wanted = ("abort", None)
    elif before.to_finish:
        return None  # ended by the engine itself, for want of memory
    elif asked.stop_at is not None and asked.stop_at < min(count, req.max_new):
        wanted = ("stop", asked.stop_at + 1)
    elif count >= req.max_new:
        wanted = ("length", req.max_new)
    if (req.finished_reason, req.finished_len) == wanted:
        return HOLDS
    return Clash(
        f"({req.finished_reason}, {req.finished_len}) == {wanted}",
        f"{req.rid} has {count} output tokens, a cap of {req.max_new}, its stop token at index {asked.stop_at} and was "
        f"{'' if asked.aborted else 'not '}aborted",
        f"its finish state is ({req.finished_reason}, {req.finished_len})",
    )


@oracle(
    "nothing-emitted-past-the-end",
    formula="not aborted: len(emitted) <= max_new, and a stop token is the last emitted one",
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.REQUEST,
    on=(Settle, Idle),
    changed_only=True,
    source="sglang 0.5.23 managers/schedule_batch Req.output_ids_through_stop; sglang #31599, vLLM #47616",
    twin="finish-inside-a-run",
)
def nothing_emitted_past_the_end(step: Step, req: ReqView) -> Finding:
    """What the client sees ends with the stop token or at the cap, whatever the run accepted beyond."""
    if req.finished_reason is None or req.finished_reason == "abort":
        return None
    emitted = req.emitted
    stopped = req.finished_reason == "stop"
    if STOP_TOKEN not in emitted[:-1] and len(emitted) <= req.max_new and (emitted[-1:] == (STOP_TOKEN,)) == stopped:
        return HOLDS
    first = emitted.index(STOP_TOKEN) if STOP_TOKEN in emitted else None
    return Clash(
        f"len(emitted) = {len(emitted)} <= {req.max_new}, stop token first at {first}",
        f"{req.rid} finished by {req.finished_reason} with finished_len {req.finished_len}",
        f"it emits {len(emitted)} tokens and the stop token stands at index {first}",
    )


@oracle(
    "finish-releases",
    formula="finished => no row, kv_allocated_len == 0, no lock",
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.REQUEST,
    on=LEDGER_EVENTS,
    changed_only=True,
    source="sglang 0.5.23 mem_cache/common release_kv_cache; sglang #12224",
    twin="finish",
)
def finish_releases(step: Step, req: ReqView) -> Finding:
    """A finished request holds nothing."""
    if req.finished_reason is None:
        return None
    if req.req_pool_idx is None and req.kv_allocated_len == 0 and not req.slots and not req.holds_lock:
        return HOLDS
    return Clash(
        f"(row, allocated, slots, lock) = ({req.req_pool_idx}, {req.kv_allocated_len}, {len(req.slots)}, "
        f"{req.holds_lock}) == (None, 0, 0, False)",
        f"{req.rid} finished by {req.finished_reason}",
        f"it still holds row {req.req_pool_idx} with {req.kv_allocated_len} positions, lock {req.holds_lock}",
    )
