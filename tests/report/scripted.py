"""A system that plays a script: one receipt and one snapshot per event. The report is tested on what it shows."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import Oracle, Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import (
    BatchView,
    DeviceView,
    LaunchView,
    PoolView,
    RelayRow,
    RelayView,
    ReqView,
    Snapshot,
    WorkerEntry,
    WorkerExit,
)
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.errors import EngineFault

EVENTS = parse_events("submit(a,5,12) prefill(a) settle prepare verify(a=3) publish settle")
RECEIPTS = (
    Receipt(),
    Receipt(launch=1, mode="EXTEND", rows=("a",), admitted=(("a", 0, 5),)),
    Receipt(settled=1, emitted=(("a", (77,)),)),
    Receipt(rows=("a",)),
    Receipt(launch=2, mode="DECODE", rows=("a",)),
    Receipt(),
    Receipt(settled=2, emitted=(("a", (78, 79, 80)),)),
)


def _pool(free: int) -> PoolView:
    return PoolView(
        page_size=1, num_pages=16, max_reqs=2, free_pages=tuple(range(17 - free, 17)), free_rows=(1,), available=free,
        evictable=0, protected=0,
    )  # fmt: skip


def _state(
    *, output: int = 0, committed: int = 0, allocated: int = 0, lens: int | None = None, relay: RelayRow | None = None,
    launch: LaunchView | None = None, pending: int = 0,
) -> Snapshot:  # fmt: skip
    req = ReqView(
        rid="a", prompt_len=5, max_new=12, output_ids=tuple(range(77, 77 + output)), kv_committed_len=committed,
        kv_allocated_len=allocated, slots=tuple(range(1, 1 + allocated)), req_pool_idx=2 if allocated else None,
    )  # fmt: skip
    batches = () if lens is None else (BatchView(name="running", rids=("a",), forward_mode="DECODE", seq_lens=(lens,)),)
    return Snapshot(
        reqs={"a": req}, pool=_pool(16 - allocated), batches=batches, launches=() if launch is None else (launch,),
        relay=RelayView(rows={} if relay is None else {"a": relay}, quiet=pending == 0),
        device=DeviceView(target_v1=(), target_v2=(), draft_v1=(), rows={}, pending=pending),
    )  # fmt: skip


def states(late: int = 8) -> tuple[Snapshot, ...]:
    """The clean script; `late` is what the last settle makes of kv_committed_len."""
    extend = LaunchView(number=1, mode="EXTEND", rids=("a",), req_pool_indices=(2,), committed=(5,), allocated=(5,))
    decode = LaunchView(number=2, mode="DECODE", rids=("a",), req_pool_indices=(2,), committed=(5,), allocated=(13,))
    entered = replace(decode, entry=WorkerEntry(seq_lens=(5,), input_tokens=((),), window=((),), prefix_lens=(5,)))
    done = replace(
        entered, exit=WorkerExit(accept_lens=(3,), new_seq_lens=(8,), next_tokens=((78, 79, 80),)), published=True
    )
    first, second = (
        RelayRow(row=2, new_seq_len=5, output_token=77),
        RelayRow(row=2, new_seq_len=8, output_token=0xABCDE),
    )
    return (
        _state(),
        _state(committed=5, allocated=5, launch=extend, pending=4),
        _state(output=1, committed=5, allocated=5, relay=first, launch=replace(extend, published=True)),
        _state(output=1, committed=5, allocated=13, lens=5, relay=first),
        _state(output=1, committed=5, allocated=13, lens=5, relay=first, launch=decode, pending=6),
        _state(output=1, committed=5, allocated=13, lens=8, relay=second, launch=done, pending=2),
        _state(output=4, committed=late, allocated=13, lens=8, relay=second, launch=done),
    )


class Scripted:
    """Plays the snapshots one by one; fault_at: the event in which the engine raises."""

    version = "1.0"

    def __init__(self, script: tuple[Snapshot, ...], name: str = "scripted", fault_at: int | None = None) -> None:
        self.name = name
        self._script = script
        self._fault_at = fault_at

    def capabilities(self, config: EngineConfig) -> Capability:
        return Capability.SPECULATIVE | Capability.OVERLAP

    def reset(self, config: EngineConfig) -> None:
        self._at = -1

    def apply(self, event: Event) -> Receipt:
        self._at += 1
        if self._at == self._fault_at:
            raise EngineFault("ZeroDivisionError: division by zero", kind="exception")
        return RECEIPTS[self._at]

    def snapshot(self) -> Snapshot:
        return replace(self._script[0], reqs={}) if self._at < 0 else self._script[self._at]

    def close(self) -> None:
        pass


def _one_pending_bonus(step: Step, req: ReqView) -> Finding:
    if step.ledger.in_flight or not req.output_ids or req.seqlen == req.kv_committed_len + 1:
        return Verdict.HOLDS
    return Clash(
        f"seqlen(a)={req.seqlen} != kv_committed_len(a)={req.kv_committed_len} + 1",
        f"event {step.index} appended 3 tokens to output_ids(a)",
        f"the same event moved kv_committed_len(a) from 5 to {req.kv_committed_len}",
    )


BONUS = Oracle(
    name="one-pending-bonus", formula="seqlen == kv_committed_len + 1", clock=Clock.HOST, owner=Owner.RESULT_PROCESSOR,
    point=Point.AFTER_EVENT, scope=Scope.REQUEST, source="sglang 0.5.23 batch_result_processor", twin="settled-a-run",
    check=_one_pending_bonus,
)  # fmt: skip
CONFIG = EngineConfig()
