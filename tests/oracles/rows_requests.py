"""Tables of the oracles in `oracles/scheduler_queue.py`."""

from __future__ import annotations

from specfuzz.core.event import Abort, Evict, Idle, Prefill, Prepare, Settle, Verify
from specfuzz.core.oracle import Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import BatchView, ReqView
from tests.oracles.build import aborted, batch, device, finished, gone, req, retracted, step
from tests.oracles.forwards import asked, launch
from tests.oracles.rows import Rows, rows

A, B = req("a"), req("b")
TWO = Receipt(launch=2, mode="DECODE", rows=("a", "b"))


def verify(*, view: dict[str, object] | None = None, **more: object) -> Step:
    """A verify of both requests; view: fields of its launch that differ."""
    fields: dict[str, object] = {"receipt": TWO, "flying": (asked("a", "b"),), "old": {"prepared": ("a", "b")}} | more
    return step(Verify(), (A, B), (A, B), launches=(launch(A, B, **(view or {})),), **fields)  # type: ignore[arg-type]


def prepare(receipt: Receipt, before: ReqView = A, after: ReqView | None = None, **more: object) -> Step:
    """A prepare of `a` with that receipt."""
    new = before if after is None else after
    return step(Prepare(), (before,), (new,), receipt=receipt, **more)  # type: ignore[arg-type]


def settle(event: Settle | Idle, number: int | None, rest: tuple[int, ...]) -> Step:
    """Results 1 and 2 were queued; the event reports `number` and leaves `rest`."""
    done = (asked("a", number=1), asked("a", number=2))
    return step(event, (A,), (A,), receipt=Receipt(settled=number), settled=done, queue=rest)


def batches(*views: BatchView, pending: int = 0) -> Step:
    """A step after which the scheduler holds these batches."""
    return step(Evict(1), (A, B), (A, B), batches=views, device=device((A, B), pending=pending))


def abort(before: ReqView, after: ReqView, rid: str = "a") -> Step:
    """An abort of `rid` that takes one view to the other."""
    return step(Abort(rid), (before,), (after,), ask=aborted("a"))


ROWS: dict[str, Rows] = {
    "queue-depth": rows(
        holds=verify,
        broken=(lambda: verify(old={"queue": (0, 1)}, queue=(0, 1, 2)), lambda: verify(queue=())),
        silent=lambda: step(Idle(), (A,), (A,)),
    ),
    "settle-takes-the-oldest": rows(
        holds=(lambda: settle(Settle(), 1, (2,)), lambda: settle(Idle(), 2, ())),
        broken=(
            lambda: settle(Settle(), 2, (1,)),
            lambda: settle(Settle(), 1, (1, 2)),
            lambda: settle(Idle(), 1, (2,)),
        ),
        silent=lambda: step(Idle(), (A,), (A,)),
    ),
    "no-dead-row-launched": rows(
        holds=(lambda: prepare(Receipt(rows=("a",))), verify),
        broken=(
            lambda: prepare(Receipt(rows=("a",)), finished()),
            lambda: prepare(Receipt(rows=("a",)), retracted()),
            lambda: verify(old={"prepared": ("a",)}),
        ),
        silent=lambda: prepare(Receipt()),
    ),
    "rows-are-unique": rows(
        holds=verify,
        broken=(
            lambda: verify(view={"rids": ("a", "a"), "req_pool_indices": (1, 1)}),
            lambda: verify(view={"req_pool_indices": (1, 1)}),
            lambda: verify(view={"req_pool_indices": (0, 2)}),
        ),
        silent=lambda: step(Idle(), (A,), (A,)),
    ),
    "rows-belong-to-their-requests": rows(
        holds=verify,
        broken=(lambda: verify(view={"req_pool_indices": (2, 1)}), lambda: verify(view={"req_pool_indices": (1,)})),
        silent=lambda: step(Idle(), (A,), (A,)),
    ),
    "batch-arrays-agree": rows(
        holds=lambda: batches(batch(A, B)),
        broken=(
            lambda: batches(batch(A, B, seq_lens=(6,))),
            lambda: batches(batch(A, B, req_pool_indices=(1, 2, 3))),
            lambda: batches(batch(A), batch(A, B, name="last", seq_lens_cpu=(6, 6, 6))),
        ),
        silent=(lambda: batches(), lambda: batches(batch(seq_lens=(6,)))),
    ),
    "mirror-equals-device": rows(
        holds=lambda: batches(batch(A, B)),
        broken=lambda: batches(batch(A, B, seq_lens_cpu=(6, 5))),
        silent=(
            lambda: batches(batch(A, B, seq_lens_cpu=None)),
            lambda: batches(batch(A, B, seq_lens_cpu=(6, 5)), pending=1),
        ),
    ),
    "no-request-is-left-behind": rows(
        holds=(
            lambda: prepare(Receipt(rows=("a",))),
            lambda: prepare(Receipt(dropped=("a",)), req(done=7), flying=(asked("a"),)),
        ),
        broken=(
            lambda: prepare(Receipt()),
            lambda: prepare(Receipt(dropped=("a",)), req(done=6), flying=(asked("a"),)),
            lambda: prepare(Receipt(dropped=("a",)), req(done=7)),
        ),
        silent=(
            lambda: prepare(Receipt(refused="no memory")),
            lambda: prepare(Receipt(skipped=True)),
            lambda: prepare(Receipt(), gone()),
        ),
    ),
    "retracted-until-admitted": rows(
        holds=lambda: step(Prepare(), (retracted(),), (retracted(decode_batch_idx=1),)),
        broken=(
            lambda: step(Prepare(), (retracted(),), (gone(retraction_count=1),)),
            lambda: step(Settle(), (retracted(),), (gone(retraction_count=1),), settled=(asked("a"),)),
        ),
        silent=(
            lambda: step(Prefill("a"), (retracted(),), (A,), receipt=Receipt(admitted=(("a", 0, 7),))),
            lambda: step(Abort("a"), (retracted(),), (finished(reason="abort", done=3),)),
        ),
    ),
    "no-row-runs-past-its-cap": rows(
        holds=lambda: prepare(Receipt(rows=("a",)), req(done=6), flying=(asked("a"),)),
        broken=lambda: prepare(Receipt(rows=("a",)), req(done=7), flying=(asked("a"),)),
        silent=lambda: prepare(Receipt(rows=("a",)), req(done=7)),
    ),
    "abort-waits-for-a-result": rows(
        holds=(
            lambda: abort(A, req(to_finish=True)),
            lambda: abort(gone(), gone(finished_reason="abort")),
            lambda: abort(retracted(), retracted(finished_reason="abort")),
        ),
        broken=(
            lambda: abort(A, finished(reason="abort", done=3)),
            lambda: abort(A, req(to_finish=True, kv_allocated_len=6)),
            lambda: abort(gone(), gone(to_finish=True)),
        ),
        silent=lambda: abort(A, A, rid="c"),
    ),
}
