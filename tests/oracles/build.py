"""Tiny worlds for the oracle tables: requests, pools, launches, steps that are right unless a row makes them wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from specfuzz.core.asked import Asked, Launched, Standing
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Submit
from specfuzz.core.judge import Tally
from specfuzz.core.language import Continuation, prompt_tokens, unembed
from specfuzz.core.legality import Ledger
from specfuzz.core.oracle import ORACLES, REACHABLE, Step
from specfuzz.core.receipt import NOTHING, Receipt
from specfuzz.core.snapshot import (
    BatchView,
    CachedPath,
    DeviceView,
    PoolView,
    RelayRow,
    RelayView,
    ReqView,
    Snapshot,
)

EAGLE = EngineConfig(num_pages=100)
SYNC = EngineConfig(num_pages=100, overlap=False)
PAGED = EngineConfig(num_pages=32, page_size=4)
PLAIN = EngineConfig(num_pages=100, algorithm="NONE")
CHUNKED = EngineConfig(num_pages=100, chunked_prefill=True, mixed_chunk=True)
PROMPT, CAP = 4, 8
ROW = {"a": 1, "b": 2, "c": 3}
FIRST_SLOT = {"a": 8, "b": 40, "c": 72}
NOTHING_SEEN = Capability.NONE
Change = Callable[[Ledger], object]


@cache
def prompt(rid: str) -> tuple[int, ...]:
    """The prompt that `submit(rid,4,8)` asks for."""
    return prompt_tokens(rid, PROMPT)


def text(rid: str, stop_at: int | None = None) -> Continuation:
    """Plain decoding of the request, far enough for every row of the tables."""
    found = Continuation(prompt(rid))
    if stop_at is not None:
        found.arm_stop(PROMPT + stop_at)
    found.ensure(PROMPT + 2 * CAP)
    return found


def out(rid: str, count: int, stop_at: int | None = None) -> tuple[int, ...]:
    """Its first output tokens."""
    return tuple(text(rid, stop_at).tokens[PROMPT : PROMPT + count])


def req(rid: str = "a", *, done: int = 3, reserve: int = 8, stop_at: int | None = None, **changes: Any) -> ReqView:
    """A live request with `done` settled output tokens and one pending bonus; its row is backed `reserve` further."""
    committed = changes.pop("kv_committed_len", PROMPT + max(done, 1) - 1)
    allocated = changes.pop("kv_allocated_len", committed + reserve)
    fields: dict[str, Any] = {
        "rid": rid, "prompt_len": PROMPT, "max_new": CAP, "output_ids": out(rid, done, stop_at),
        "req_pool_idx": ROW[rid],
        "kv_committed_len": committed, "kv_allocated_len": allocated,
        "slots": tuple(range(FIRST_SLOT[rid], FIRST_SLOT[rid] + allocated)), "decode_batch_idx": 2,
        "extend_batch_idx": 1,
    }  # fmt: skip
    return ReqView(**(fields | changes))


def gone(rid: str = "a", *, done: int = 3, **changes: Any) -> ReqView:
    """A request without a row: waiting unless a change says otherwise."""
    nothing: dict[str, Any] = {
        "req_pool_idx": None, "kv_committed_len": 0, "kv_allocated_len": 0, "slots": (), "decode_batch_idx": 0,
        "extend_batch_idx": 0,
    }  # fmt: skip
    return req(rid, done=done, **(nothing | changes))


def finished(rid: str = "a", reason: str = "length", *, done: int = CAP, **changes: Any) -> ReqView:
    """A finished request that has given everything back."""
    fields = {"finished_reason": reason, "finished_len": None if reason == "abort" else done}
    return gone(rid, done=done, **({"kv_committed_len": PROMPT + done - 1} | fields | changes))


def retracted(rid: str = "a", *, done: int = 3, **changes: Any) -> ReqView:
    """A request that was retracted and waits again."""
    return gone(rid, done=done, **({"is_retracted": True, "retraction_count": 1} | changes))


# ------------------------------------------------------------------------------------------------------------- views
def path(rid: str, length: int, first_slot: int = 1) -> CachedPath:
    """A cached path over the first `length` positions of the request's text, with the following token in its key."""
    return CachedPath(tokens=tuple(text(rid).tokens[: length + 1]), slots=tuple(range(first_slot, first_slot + length)))


def pool(
    reqs: Iterable[ReqView], config: EngineConfig = EAGLE, cached: tuple[CachedPath, ...] = (), **changes: Any
) -> PoolView:
    """The pool that fits the requests and the cached paths."""
    size = config.page_size
    held = {slot // size for one in reqs for slot in one.slots}
    slots = {slot for one in cached for slot in one.slots}
    rows = {one.req_pool_idx for one in reqs}
    free = tuple(p for p in range(1, config.num_pages + 1) if p not in held and p not in {s // size for s in slots})
    locked = {slot for one in reqs for slot in one.slots[: one.cache_protected_len]}
    fields: dict[str, Any] = {
        "page_size": size, "num_pages": config.num_pages, "max_reqs": config.max_reqs, "free_pages": free,
        "free_rows": tuple(row for row in range(1, config.max_reqs + 1) if row not in rows),
        "available": len(free) * size,
        "evictable": len(slots) - len(locked), "protected": len(locked), "cached": cached,
    }  # fmt: skip
    return PoolView(**(fields | changes))


def device(reqs: Iterable[ReqView], cached: tuple[CachedPath, ...] = (), **changes: Any) -> DeviceView:
    """Memory that holds the true cells of every slot that a row or a path names."""
    first, second, draft = [0] * 140, [0] * 140, [0] * 140
    rows = {}
    for one in reqs:
        rows[one.rid] = one.slots
        line = text(one.rid)
        for position, slot in enumerate(one.slots):
            first[slot], second[slot] = line.target_cell(position)
            draft[slot] = line.draft_cell(position)
    for known in cached:
        line = Continuation(known.tokens)
        for position, slot in enumerate(known.slots):
            first[slot], second[slot] = line.target_cell(position)
            draft[slot] = line.draft_cell(position)
    fields: dict[str, Any] = {
        "target_v1": tuple(first), "target_v2": tuple(second), "draft_v1": tuple(draft), "rows": rows,
    }  # fmt: skip
    return DeviceView(**(fields | changes))


def spoiled(view: DeviceView, memory: str, slot: int) -> DeviceView:
    """The same memory with one wrong cell."""
    cells = list(getattr(view, memory))
    cells[slot] += 1
    return replace(view, **{memory: tuple(cells)})


def relay(*reqs: ReqView, **changes: Any) -> RelayView:
    """The relay rows that the requests' next round will find."""
    rows = {}
    for one in reqs:
        place = one.seqlen - 1
        hidden = text(one.rid).hidden(place)
        fields: dict[str, Any] = {
            "row": one.req_pool_idx, "new_seq_len": place, "output_token": one.output_ids[-1], "hidden": hidden,
            "topk_index": unembed(hidden),
        }  # fmt: skip
        rows[one.rid] = RelayRow(**(fields | changes))
    return RelayView(rows=rows, quiet=True)


def batch(*reqs: ReqView, name: str = "running", **changes: Any) -> BatchView:
    """A batch of the requests whose arrays agree."""
    rows = tuple(one.req_pool_idx or 0 for one in reqs)
    lens = tuple(one.kv_committed_len for one in reqs)
    fields: dict[str, Any] = {
        "name": name, "rids": tuple(one.rid for one in reqs), "forward_mode": "DECODE", "req_pool_indices": rows,
        "seq_lens": lens, "seq_lens_cpu": lens, "future_indices": rows,
    }  # fmt: skip
    return BatchView(**(fields | changes))


# ------------------------------------------------------------------------------------------------------------- steps
def step(
    event: Event,
    before: Iterable[ReqView],
    after: Iterable[ReqView],
    *,
    config: EngineConfig = EAGLE,
    receipt: Receipt = NOTHING,
    flying: tuple[Launched, ...] = (),
    settled: tuple[Launched, ...] = (),
    prepared: tuple[str, ...] | None = None,
    queue: tuple[int, ...] | None = None,
    ask: Change | None = None,
    cached: tuple[CachedPath, ...] = (),
    old: dict[str, Any] | None = None,
    extra: Capability = Capability.NONE,
    lacking: Capability = Capability.NONE,
    **new: Any,
) -> Step:
    """One step between two worlds. ask: amends the ledger. old, new: fields of the two snapshots."""
    before, after = tuple(before), tuple(after)
    ledger = Ledger(config)
    for one in after:
        record = Asked(submit=Submit(one.rid, one.prompt_len, one.max_new))
        record.extend_settled = True
        record.standing = Standing.RUNNING if one.req_pool_idx is not None else Standing.WAITING
        if one.finished_reason is not None:
            record.standing = Standing.FINISHED
        record.decided = record.settled = len(one.output_ids)
        ledger.requests[one.rid] = record
    ledger.in_flight, ledger.settled, ledger.prepared = list(flying), list(settled), prepared
    if ask is not None:
        ask(ledger)
    waiting_then = tuple(sorted({known.number for known in (*settled, *flying)} - {receipt.launch}))
    here = tuple(known.number for known in flying) if queue is None else queue
    then = Snapshot(
        **(
            {"reqs": {one.rid: one for one in before}, "pool": pool(before, config), "queue": waiting_then}
            | (old or {})
        )
    )
    now_fields: dict[str, Any] = {
        "reqs": {one.rid: one for one in after}, "pool": pool(after, config, cached), "queue": here,
        "prepared": prepared,
        "running": tuple(one.rid for one in after if one.req_pool_idx is not None), "writes": (), "races": (),
        "device": device(after, cached), "relay": relay(*(one for one in after if one.req_pool_idx and one.output_ids)),
    }  # fmt: skip
    now = Snapshot(**(now_fields | new))
    return Step(
        index=0, event=event, receipt=receipt, before=then, after=now, ledger=ledger, config=config,
        capabilities=(capabilities(config) | extra) & ~lacking, memo={},
    )  # fmt: skip


def capabilities(config: EngineConfig) -> Capability:
    """Everything that this configuration can do and show."""
    found = ~(
        Capability.TREE | Capability.MIXED_CHUNK | Capability.CHUNKED_PREFILL | Capability.PAGED | Capability.OVERLAP
        | Capability.SPECULATIVE | Capability.DRAFT_KV | Capability.DRAFT_EXTRAS | Capability.GRAMMAR
    )  # fmt: skip
    if config.grammar:
        found |= Capability.GRAMMAR
    if config.page_size > 1:
        found |= Capability.PAGED
    if config.overlap:
        found |= Capability.OVERLAP
    if config.mixed_chunk:
        found |= Capability.MIXED_CHUNK
    if config.chunked_prefill:
        found |= Capability.CHUNKED_PREFILL
    if config.speculative:
        found |= Capability.SPECULATIVE | Capability.DRAFT_KV | Capability.DRAFT_EXTRAS
        found |= Capability.TREE if config.topk > 1 else Capability.NONE
    return found


def arm(rid: str, at: int) -> Change:
    """Ledger change: a stop token at output index `at`."""
    return lambda ledger: ledger.requests[rid].arm_stop(at)


def constrain(rid: str, length: int) -> Change:
    """Ledger change: the request was submitted with a grammar that ends there at the latest."""

    def ask(ledger: Ledger) -> None:
        known = ledger.requests[rid]
        amended = Asked(submit=replace(known.submit, grammar=length))
        amended.standing, amended.extend_settled = known.standing, True
        amended.decided = amended.settled = known.settled
        ledger.requests[rid] = amended

    return ask


def aborted(rid: str) -> Change:
    """Ledger change: an abort was asked for."""
    return lambda ledger: setattr(ledger.requests[rid], "aborted", True)


def extending(rid: str) -> Change:
    """Ledger change: the request's extend is not settled."""
    return lambda ledger: setattr(ledger.requests[rid], "extend_settled", False)


def chunked(rid: str) -> Change:
    """Ledger change: the request's prompt is launched in part and goes on."""

    def ask(ledger: Ledger) -> None:
        ledger.requests[rid].standing = Standing.CHUNKED
        ledger.requests[rid].extend_settled = False

    return ask


def verdict(name: str, row: Step) -> str:
    """What the judge counts for one oracle on one step: holds, violated, unknown or silent."""
    tally = Tally()
    oracle = ORACLES.get(name)
    if oracle.needs not in row.capabilities:
        return "silent"
    tally.panel([oracle], [], row.capabilities).judge(row)
    count = tally.of(name)
    for word in ("violated", "unknown", "holds"):
        if getattr(count, word):
            return word
    return "silent"


def reached(name: str, row: Step) -> bool:
    """Whether the step reaches the goal, which must be reachable at all there."""
    goal = REACHABLE.get(name)
    looks = goal.on is None or type(row.event) in goal.on
    return looks and goal.needs in row.capabilities and goal.reached(row)
