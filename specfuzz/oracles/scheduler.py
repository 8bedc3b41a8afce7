"""Rules that the scheduler must keep on the host ledger: order, reserve, claims, clocks. Lengths in tokens."""

from __future__ import annotations

from specfuzz.core.asked import Standing
from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Idle, Mix, Prefill, Prepare, Settle, Verify
from specfuzz.core.lemmas import ceil_align, floor_align
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import LEDGER_EVENTS, is_live, limits, same_residence, sampling

HOLDS = Verdict.HOLDS


@oracle(
    "ledger-in-order",
    formula="0 <= cache_protected_len <= kv_committed_len <= kv_allocated_len <= row width",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    on=LEDGER_EVENTS,
    changed_only=True,
    source="sglang 0.5.23 managers/scheduler_components/invariant_checker; sglang #33579",
    twin="launch",
)
def ledger_in_order(step: Step, req: ReqView) -> Finding:
    """A request that holds a row keeps its four lengths in order and inside the row."""
    if req.req_pool_idx is None:
        return None
    protected, committed, allocated = req.cache_protected_len, req.kv_committed_len, req.kv_allocated_len
    width = step.after.pool.row_width or limits(step).row_width
    if 0 <= protected <= committed <= allocated <= width:
        return HOLDS
    names = ("0", "cache_protected_len", "kv_committed_len", "kv_allocated_len", "the width of a row")
    lens = (0, protected, committed, allocated, width)
    at = next(at for at in range(4) if lens[at] > lens[at + 1])
    return Clash(
        f"0 <= {protected} <= {committed} <= {allocated} <= {width}",
        f"{req.rid} holds row {req.req_pool_idx}, protected {protected}, committed {committed}, allocated {allocated}",
        f"{names[at]} {lens[at]} > {names[at + 1]} {lens[at + 1]}",
    )


@oracle(
    "reserve-covers-two-rounds",
    formula="after prepare: kv_allocated_len >= kv_committed_len + 2 * alloc_len_per_decode",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    needs=Capability.SPECULATIVE,
    on=(Prepare, Mix),
    source="sglang 0.5.23 mem_cache/allocation_sizing page_aligned_decode_alloc_lens; TensorRT-LLM #16280",
    twin="prepare-behind-the-device",
)
def reserve_covers_two_rounds(step: Step, req: ReqView) -> Finding:
    """Prepare reserves the round that is in flight and the one that it prepares."""
    if req.rid not in step.receipt.rows or _admitted(step, req.rid):
        return None
    wanted = req.kv_committed_len + limits(step).reserve
    if req.kv_allocated_len >= wanted:
        return HOLDS
    return Clash(
        f"{req.kv_allocated_len} >= {req.kv_committed_len} + {step.config.reserve_per_decode}",
        f"prepare left {req.rid} with {req.kv_allocated_len} allocated positions",
        "the device may lead by one accepted run and writes "
        f"{step.config.alloc_len_per_decode} more: {wanted} are needed",
    )


@oracle(
    "reserve-ends-on-a-page",
    formula="after prepare: kv_allocated_len % page_size == 0",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    needs=Capability.SPECULATIVE | Capability.PAGED,
    on=(Prepare, Mix),
    source="sglang 0.5.23 mem_cache/allocation_sizing page_aligned_decode_alloc_lens; sglang #31616, #35265",
    twin="prepare",
)
def reserve_ends_on_a_page(step: Step, req: ReqView) -> Finding:
    """The allocator hands out whole pages, so a reserve that ends inside one strands its tail."""
    if req.rid not in step.receipt.rows or _admitted(step, req.rid):
        return None
    page_size = limits(step).page_size
    if req.kv_allocated_len % page_size == 0:
        return HOLDS
    return Clash(
        f"{req.kv_allocated_len} % {page_size} == {req.kv_allocated_len % page_size} != 0",
        f"prepare recorded {req.kv_allocated_len} allocated positions for {req.rid}",
        f"the allocator gave it the whole page up to {ceil_align(req.kv_allocated_len, page_size)}",
    )


@oracle(
    "reserve-is-not-hoarded",
    formula="prepare: kv_allocated_len == max(before, ceil_page(kv_committed_len + reserve))",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    needs=Capability.SPECULATIVE,
    on=(Prepare, Mix),
    changed_only=True,
    source="sglang 0.5.23 mem_cache/allocation alloc_for_spec_decode; sglang #32459",
    twin="prepare",
)
def reserve_is_not_hoarded(step: Step, req: ReqView) -> Finding:
    """Prepare grows the reserve up to its bound, never on top of what is reserved already."""
    before = step.before.reqs.get(req.rid)
    if before is None or req.rid not in step.receipt.rows or _admitted(step, req.rid):
        return None
    bounds = limits(step)
    most = max(before.kv_allocated_len, ceil_align(req.kv_committed_len + bounds.reserve, bounds.page_size))
    if req.kv_allocated_len <= most:
        return HOLDS
    return Clash(
        f"{req.kv_allocated_len} <= max({before.kv_allocated_len}, {most})",
        f"prepare raised kv_allocated_len({req.rid}) from {before.kv_allocated_len} to {req.kv_allocated_len}",
        f"committed {req.kv_committed_len} plus a reserve of {step.config.reserve_per_decode} needs {most}",
    )


@oracle(
    "prepare-never-commits",
    formula="speculative prepare: kv_committed_len unchanged",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    needs=Capability.SPECULATIVE,
    on=(Prepare,),
    changed_only=True,
    source="sglang 0.5.23 speculative/eagle_utils eagle_prepare_for_decode; sglang #24590, #24745",
    twin="prepare",
)
def prepare_never_commits(step: Step, req: ReqView) -> Finding:
    """A speculative prepare reserves capacity; only a settled result commits."""
    before = step.before.reqs.get(req.rid)
    if before is None or req.rid not in step.receipt.rows:
        return None
    if before.kv_committed_len == req.kv_committed_len:
        return HOLDS
    return Clash(
        f"{req.kv_committed_len} == {before.kv_committed_len}",
        f"prepare moved kv_committed_len({req.rid}) from {before.kv_committed_len} to {req.kv_committed_len}",
        "no result was processed between the two",
    )


@oracle(
    "plain-claims-are-counted",
    formula="plain: kv_committed_len == seqlen - 1 + unsettled forwards that sample for it + (1 if prepared)",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    on=(Prefill, Mix, Prepare, Settle, Idle),
    source="sglang 0.5.23 mem_cache/allocation alloc_for_decode_default; sglang #12224",
    twin="prepare",
)
def plain_claims_are_counted(step: Step, req: ReqView) -> Finding:
    """Plain decoding claims one position per launch when it prepares; every claim has its launch."""
    if limits(step).speculative or not is_live(req):
        return None
    ledger = step.ledger
    if ledger.requests[req.rid].standing is Standing.CHUNKED:
        return None  # a chunk commits its own end; the claims start with the last one
    flying = sampling(step, req.rid)
    prepared = 1 if ledger.prepared is not None and req.rid in ledger.prepared else 0
    wanted = req.seqlen - 1 + flying + prepared
    if req.kv_committed_len == wanted:
        return HOLDS
    return Clash(
        f"{req.kv_committed_len} == {req.seqlen} - 1 + {flying} + {prepared}",
        f"kv_committed_len({req.rid}) is {req.kv_committed_len}",
        f"{req.seqlen} tokens are settled, {flying} forwards are in flight "
        f"and {prepared} prepared: that claims {wanted}",
    )


@oracle(
    "extend-commits-its-window",
    formula=(
        "prefill: kv_committed_len == kv_allocated_len == prefix_len + extend_len <= seqlen, the whole of it unless "
        "a chunk was asked for; prefix_len: whole pages, or where the chunk before has ended"
    ),
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    on=(Prefill, Mix),
    source="sglang 0.5.23 mem_cache/allocation alloc_for_extend",
    twin="prefix-hit",
)
def extend_commits_its_window(step: Step, req: ReqView) -> Finding:
    """An admitted request owns exactly its prefix and its extend, and always extends by at least one token."""
    for rid, start, length in step.receipt.admitted:
        if rid == req.rid:
            return _window(step, req, start, length)
    return None


def _window(step: Step, req: ReqView, prefix: int, extend: int) -> Finding:
    end, before = prefix + extend, step.before.reqs.get(req.rid)
    later = before is not None and before.req_pool_idx is not None  # it holds the row of the chunk before
    whole = end == req.seqlen or later or 1 <= extend <= getattr(step.event, "n", 0)
    fits = req.kv_committed_len == end and req.kv_allocated_len == end and end <= req.seqlen and whole
    start = before.kv_committed_len if later and before is not None else floor_align(prefix, limits(step).page_size)
    if fits and prefix == start and extend >= 1 and not req.is_retracted and req.req_pool_idx is not None:
        return HOLDS
    return Clash(
        f"{req.kv_committed_len} == {req.kv_allocated_len} == {prefix} + {extend} <= {req.seqlen}",
        f"{req.rid} was admitted with a prefix of {prefix} and an extend of {extend} tokens",
        f"its ledger says committed {req.kv_committed_len}, allocated {req.kv_allocated_len} of {req.seqlen} tokens, "
        f"row {req.req_pool_idx}, retracted {req.is_retracted}",
    )


@oracle(
    "allocated-never-shrinks",
    formula="while the row is held: kv_allocated_len after >= before",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    on=LEDGER_EVENTS,
    changed_only=True,
    source="sglang 0.5.23 mem_cache/allocation alloc_for_spec_decode; sglang-jax #1147",
    twin="prepare",
)
def allocated_never_shrinks(step: Step, req: ReqView) -> Finding:
    """Slots of a row come back only when the row is released."""
    before = step.before.reqs.get(req.rid)
    if before is None or not same_residence(before, req):
        return None
    if before.kv_allocated_len <= req.kv_allocated_len:
        return HOLDS
    return Clash(
        f"{req.kv_allocated_len} >= {before.kv_allocated_len}",
        f"kv_allocated_len({req.rid}) fell from {before.kv_allocated_len} to {req.kv_allocated_len}",
        f"it still holds row {req.req_pool_idx}",
    )


@oracle(
    "clocks-tick-once",
    formula="decode_batch_idx += 1 per decode or mixed round, extend_batch_idx += 1 per extend; 0 after retraction",
    clock=Clock.HOST,
    owner=Owner.SCHEDULER,
    scope=Scope.REQUEST,
    on=LEDGER_EVENTS,
    changed_only=True,
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch.prepare_for_decode; sglang #34924",
    twin="prepare",
)
def clocks_tick_once(step: Step, req: ReqView) -> Finding:
    """Each clock of a request ticks once per participation, at schedule time, and nowhere else."""
    before = step.before.reqs.get(req.rid)
    if before is None or req.finished_reason is not None:
        return None
    decode, extend = before.decode_batch_idx, before.extend_batch_idx
    why = "took part in no round"
    kind = type(step.event)
    if kind is Verify or kind is Settle:
        if req.decode_batch_idx == decode and req.extend_batch_idx == extend:
            return HOLDS  # these events tick no clock
    elif req.rid in step.receipt.retracted:
        decode = extend = 0
        why = "was retracted"
    elif _admitted(step, req.rid):
        extend += 1
        why = "was extended once"
    elif (kind is Prepare or kind is Mix) and req.rid in step.receipt.rows:
        decode += 1
        why = "was prepared for one decode round"
    if req.decode_batch_idx == decode and req.extend_batch_idx == extend:
        return HOLDS
    return Clash(
        f"(decode, extend) = ({req.decode_batch_idx}, {req.extend_batch_idx}) == ({decode}, {extend})",
        f"the clocks of {req.rid} went from ({before.decode_batch_idx}, {before.extend_batch_idx}) to "
        f"({req.decode_batch_idx}, {req.extend_batch_idx})",
        f"in this event it {why}",
    )


def _admitted(step: Step, rid: str) -> bool:
    for known, _prefix, _extend in step.receipt.admitted:
        if known == rid:
            return True
    return False
