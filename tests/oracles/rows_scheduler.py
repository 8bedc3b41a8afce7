"""Tables of the oracles in `oracles/scheduler.py`."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.event import Idle, Prefill, Prepare, Retract, Settle, Verify
from specfuzz.core.oracle import Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import ReqView
from tests.oracles.build import PAGED, PLAIN, gone, req, retracted, step
from tests.oracles.forwards import asked
from tests.oracles.rows import Rows, rows

PREPARED = Receipt(rows=("a",), mode="DECODE")


def prepare(after: ReqView, before: ReqView | None = None, receipt: Receipt = PREPARED, **more: object) -> Step:
    """A prepare that ticks the decode clock of `a` and leaves it as `after`."""
    old = before if before is not None else req(reserve=0)
    return step(Prepare(), (old,), (after,), receipt=receipt, prepared=("a",), **more)  # type: ignore[arg-type]


def ticked(**changes: object) -> ReqView:
    """The request after a right prepare."""
    return req(decode_batch_idx=3, **changes)  # type: ignore[arg-type]


def plain(done: int, committed: int, **more: object) -> Step:
    """A plain request with `done` outputs and that committed length, after a settle."""
    view = req(done=done, kv_committed_len=committed, kv_allocated_len=committed)
    return step(Settle(), (req(done=done - 1),), (view,), config=PLAIN, **more)  # type: ignore[arg-type]


def admit(prefix: int, extend: int, after: ReqView, before: ReqView | None = None) -> Step:
    """A prefill of `a` that the receipt describes so."""
    receipt = Receipt(rows=("a",), admitted=(("a", prefix, extend),), launch=1, mode="EXTEND")
    old = gone(done=0) if before is None else before
    return step(Prefill("a"), (old,), (after,), receipt=receipt, flying=(asked("a", number=1, mode="EXTEND"),))


def same() -> Step:
    """An event that changed nothing: the snapshots share the request's view."""
    return step(Idle(), (STEADY,), (STEADY,))


def retract(after: ReqView) -> Step:
    """A retraction that leaves `a` so."""
    return step(Retract("a"), (req(),), (after,), receipt=Receipt(retracted=("a",)))


STEADY = req()
FRESH = req(done=0, kv_committed_len=4, kv_allocated_len=4, decode_batch_idx=0)
ROWS: dict[str, Rows] = {
    "ledger-in-order": rows(
        holds=lambda: prepare(ticked()),
        broken=(
            lambda: prepare(ticked(kv_committed_len=15, kv_allocated_len=14)),
            lambda: prepare(ticked(cache_protected_len=7)),
            lambda: prepare(ticked(kv_allocated_len=77)),
        ),
        silent=(same, lambda: retract(retracted())),
    ),
    "reserve-covers-two-rounds": rows(
        holds=lambda: prepare(ticked()),
        broken=(lambda: prepare(ticked(reserve=7)), lambda: prepare(ticked(reserve=4))),
        silent=(lambda: prepare(ticked(reserve=4), receipt=Receipt()), lambda: plain(3, 6)),
    ),
    "reserve-ends-on-a-page": rows(
        holds=lambda: prepare(ticked(kv_allocated_len=16), config=PAGED),
        broken=lambda: prepare(ticked(kv_allocated_len=14), config=PAGED),
        silent=lambda: prepare(ticked(kv_allocated_len=14)),
    ),
    "reserve-is-not-hoarded": rows(
        holds=(lambda: prepare(ticked()), lambda: prepare(ticked(reserve=20), req(reserve=20))),
        broken=(lambda: prepare(ticked(reserve=9)), lambda: prepare(ticked(reserve=16), req(reserve=8))),
        silent=lambda: prepare(ticked(reserve=9), receipt=Receipt()),
    ),
    "prepare-never-commits": rows(
        holds=lambda: prepare(ticked()),
        broken=lambda: prepare(ticked(kv_committed_len=7)),
        silent=lambda: prepare(ticked(kv_committed_len=7), receipt=Receipt()),
    ),
    "plain-claims-are-counted": rows(
        holds=(
            lambda: plain(3, 6),
            lambda: plain(3, 7, prepared=("a",)),
            lambda: plain(3, 8, prepared=("a",), flying=(asked("a"),)),
        ),
        broken=(lambda: plain(3, 7), lambda: plain(3, 6, flying=(asked("a"),))),
        silent=lambda: prepare(ticked()),
    ),
    "extend-commits-its-window": rows(
        holds=(
            lambda: admit(0, 4, FRESH),
            lambda: admit(2, 2, replace(FRESH, cache_protected_len=2)),
        ),
        broken=(
            lambda: admit(0, 4, replace(FRESH, kv_committed_len=5)),
            lambda: admit(0, 4, replace(FRESH, is_retracted=True)),
            lambda: admit(0, 3, replace(FRESH, kv_committed_len=3, kv_allocated_len=3)),
        ),
        silent=lambda: step(Prefill("b"), (req(),), (req(),), receipt=Receipt(admitted=(("b", 0, 4),))),
    ),
    "allocated-never-shrinks": rows(
        holds=(lambda: prepare(ticked(), req(reserve=8)), lambda: prepare(ticked())),
        broken=lambda: prepare(ticked(reserve=7), req(reserve=8)),
        silent=(lambda: retract(retracted()), same),
    ),
    "clocks-tick-once": rows(
        holds=(
            lambda: prepare(ticked()),
            lambda: admit(0, 4, FRESH),
            lambda: retract(retracted()),
            lambda: step(Settle(), (req(),), (req(done=4),)),
        ),
        broken=(
            lambda: prepare(req(decode_batch_idx=4)),
            lambda: prepare(req()),
            lambda: step(Verify(), (req(),), (req(decode_batch_idx=3),)),
            lambda: admit(0, 4, replace(FRESH, extend_batch_idx=2)),
            lambda: retract(retracted(decode_batch_idx=2)),
        ),
        silent=same,
    ),
    "retraction-resets": rows(
        holds=lambda: retract(retracted()),
        broken=(
            lambda: retract(retracted(kv_committed_len=6)),
            lambda: retract(retracted(is_retracted=False)),
            lambda: retract(retracted(done=2)),
            lambda: retract(retracted(retraction_count=0)),
            lambda: retract(retracted(holds_lock=True)),
        ),
        silent=lambda: step(Retract("a"), (req(),), (req(),), receipt=Receipt(refused="not running")),
    ),
}
