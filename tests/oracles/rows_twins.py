"""For every reachable goal a step that reaches it and one that doesn't."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.event import Abort, Evict, Idle, Prefill, Prepare, Publish, Retract, Settle, Verify
from specfuzz.core.oracle import Step
from specfuzz.core.receipt import Receipt
from tests.oracles.build import PAGED, device, finished, gone, out, path, pool, req, retracted, step
from tests.oracles.forwards import asked, executed, launch
from tests.oracles.rows import Row

A, B = req("a"), req("b")


def nothing() -> Step:
    """An event in which nothing happens."""
    return step(Evict(1), (A,), (A,))


def launches(*views: object, **more: object) -> Step:
    """A publish event with these launches."""
    return step(Publish(), (A, B), (A, B), launches=views, **more)  # type: ignore[arg-type]


def settle(length: int | None, done: int, reason: str = "stop") -> Step:
    """`a` goes from 3 to `done` outputs and finishes with that length."""
    view = finished(reason=reason, done=done, finished_len=length)
    receipt = Receipt(settled=2, emitted=(("a", out("a", done)[3:]),), finished=(("a", reason, length),))
    return step(Settle(), (A,), (view,), receipt=receipt, settled=(asked("a"),))


def prepare(**fields: object) -> Step:
    """A prepare with that receipt."""
    return step(Prepare(), (A, B), (A, B), receipt=Receipt(**fields), old={"running": ("a", "b")})  # type: ignore[arg-type]


def admit(prefix: int, before: object = None, row: int = 1) -> Step:
    """A prefill of `a` that finds `prefix` tokens in the tree."""
    old = before if before is not None else gone(done=0)
    receipt = Receipt(admitted=(("a", prefix, 4 - prefix),), launch=1, mode="EXTEND", rows=("a",))
    return step(Prefill("a"), (old,), (replace(A, req_pool_idx=row),), receipt=receipt)  # type: ignore[arg-type]


def reused() -> Step:
    """Row 1 goes to `a`, and `b` held it before."""
    found = admit(0)
    found.memo["row-holders"] = {1: "b"}
    return found


def retract(*, flying: bool = False) -> Step:
    """A retraction on request, with or without a forward in flight."""
    return step(
        Retract("a"), (A,), (retracted(),), receipt=Receipt(retracted=("a",)), flying=(asked("a"),) if flying else ()
    )


def crossing(done: int) -> Step:
    """A verify of two tokens ends with `done` outputs, on pages of four."""
    view = req(done=done)
    receipt = Receipt(settled=2, emitted=(("a", view.output_ids[-2:]),))
    return step(Settle(), (A,), (view,), config=PAGED, receipt=receipt, settled=(asked("a"),))


SETTLED = (asked("a", mode="EXTEND", extended=("a",)),)
GOALS: dict[str, tuple[Row, Row]] = {
    "launch": (lambda: admit(0), nothing),
    "prepare": (lambda: prepare(rows=("a",)), lambda: prepare()),
    "prepare-behind-the-device": (
        lambda: step(Prepare(), (A,), (A,), receipt=Receipt(rows=("a",)), flying=(asked("a"),)),
        lambda: step(Prepare(), (A, B), (A, B), receipt=Receipt(rows=("a",)), flying=(asked("b"),)),
    ),
    "two-rows-in-a-batch": (
        lambda: step(Verify(), (A, B), (A, B), receipt=Receipt(rows=("a", "b"), launch=2)),
        lambda: step(Verify(), (A,), (A,), receipt=Receipt(rows=("a",), launch=2)),
    ),
    "device-leads-host": (
        lambda: launches(executed(A, lead=2, unsettled_before=1)),
        lambda: launches(executed(A, unsettled_before=1)),
    ),
    "published-before-settled": (lambda: launches(launch(A, published=True)), lambda: launches(launch(A))),
    "result-settles": (lambda: step(Settle(), (A,), (A,), settled=SETTLED), nothing),
    "verify-settles": (
        lambda: step(Settle(), (A,), (A,), settled=(asked("a"),)),
        lambda: step(Settle(), (A,), (A,), settled=SETTLED),
    ),
    "dead-row-settles": (
        lambda: step(Settle(), (finished(),), (finished(),), settled=(asked("a"),)),
        lambda: step(Settle(), (A,), (A,), settled=(asked("a"),)),
    ),
    "retracted-row-settles": (
        lambda: step(Settle(), (retracted(),), (retracted(),), settled=(asked("a"),)),
        lambda: step(Settle(), (finished(),), (finished(),), settled=(asked("a"),)),
    ),
    "run-of-several-tokens": (lambda: settle(5, 5), lambda: settle(4, 4)),
    "finish": (lambda: settle(5, 5), nothing),
    "finish-by-length": (lambda: settle(8, 9, "length"), lambda: settle(5, 5)),
    "finish-inside-a-run": (lambda: settle(5, 6), lambda: settle(6, 6)),
    "finish-at-first-token-of-a-run": (lambda: settle(4, 6), lambda: settle(4, 4)),
    "finish-at-last-token-of-a-run": (lambda: settle(6, 6), lambda: settle(4, 4)),
    "stop-and-length-in-one-run": (lambda: settle(7, 9), lambda: settle(5, 6)),
    "retraction": (retract, nothing),
    "retraction-under-pressure": (lambda: prepare(retracted=("b",), rows=("a",)), retract),
    "retraction-with-a-result-in-flight": (lambda: retract(flying=True), retract),
    "resume-after-retraction": (lambda: admit(0, retracted(done=0)), lambda: admit(0)),
    "abort-in-flight": (
        lambda: step(Abort("a"), (A,), (A,), flying=(asked("a"),)),
        lambda: step(Abort("a"), (A,), (A,)),
    ),
    "abort-while-waiting": (lambda: step(Abort("a"), (gone(),), (gone(),)), lambda: step(Abort("a"), (A,), (A,))),
    "prefix-hit": (lambda: admit(2), lambda: admit(0)),
    "tree-holds-output": (
        lambda: step(
            Settle(),
            (A,),
            (finished(),),
            receipt=Receipt(finished=(("a", "length", 8),)),
            pool=pool((), cached=(path("a", 9),)),
        ),
        lambda: settle(5, 5),
    ),
    "eviction": (lambda: step(Evict(1), (A,), (A,), receipt=Receipt(evicted=1)), nothing),
    "page-boundary-crossed": (lambda: crossing(6), lambda: crossing(4)),
    "batch-shrinks": (lambda: prepare(rows=("a",)), lambda: prepare(rows=("a", "b"))),
    "row-reused": (reused, lambda: admit(0)),
    "work-pending": (lambda: step(Evict(1), (A,), (A,), device=device((A,), pending=1)), nothing),
    "idle-and-empty": (lambda: step(Idle(), (finished(),), (finished(),)), lambda: step(Idle(), (A,), (A,))),
}
