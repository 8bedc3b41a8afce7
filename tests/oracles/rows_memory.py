"""Tables of the oracles in `oracles/scheduler_memory.py` and `radix_use.py`: who gives way, what is cached and hit."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.asked import Launched
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Evict, Mix, Prefill, Prepare, Settle
from specfuzz.core.oracle import Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import CachedPath, ReqView
from tests.oracles.build import CHUNKED, EAGLE, finished, gone, out, path, pool, req, retracted, step
from tests.oracles.forwards import asked
from tests.oracles.rows import Row, Rows, rows

#: Rows without any reserve: the next round of each takes 8 pages.
A, B, C = (req(rid, reserve=0) for rid in "abc")
SENIOR = req("a", done=4, reserve=0)


def short(receipt: Receipt, free: int, *before: ReqView, event: Event | None = None) -> Step:
    """A prepare with that receipt while `free` pages were free and the rows held what they hold in `before`."""
    view = pool(before)
    after = [retracted(one.rid) if one.rid in receipt.retracted else one for one in before]
    old = {"pool": replace(view, free_pages=view.free_pages[:free])}
    return step(event or Prepare(), before, after, receipt=receipt, old=old)


def gives_way(free: int) -> Step:
    """A prepare retracts `b` and keeps `a`."""
    return short(Receipt(rows=("a",), retracted=("b",)), free, SENIOR, B)


def two_give_way(free: int) -> Step:
    """A prepare retracts `c`, whose row holds 6 pages, then `b`."""
    return short(Receipt(rows=("a",), retracted=("c", "b")), free, SENIOR, B, C)


def aborted(free: int) -> Step:
    """A prepare aborts the only row for want of memory."""
    return short(Receipt(finished=(("a", "abort", None),)), free, A)


def skipped(free: int = 7, *, done: int = 7, dropped: tuple[str, ...] = ("b",), skips: bool = True) -> Step:
    """A prepare skips the round of `a` or launches it, while a queued result carries `b` with `done` of 8 tokens."""
    ending = req("b", done=done)
    view = pool((A, ending))
    return step(
        Prepare(), (A, ending), (A, ending), flying=(asked("b"),),
        receipt=Receipt(skipped=skips, dropped=dropped, rows=() if skips else ("a",)),
        running=("a",), old={"pool": replace(view, free_pages=view.free_pages[:free])},
    )  # fmt: skip


def admitted(
    pages: int, *, event: Event | None = None, config: EngineConfig = EAGLE, later: bool = False, free: int = 50
) -> Step:
    """`b` is admitted with 4 tokens beside `a`, which holds 6 pages, in a pool of so many pages."""
    view = pool((A,))
    fresh = req("b", done=0, kv_allocated_len=4)
    receipt = Receipt(admitted=(("b", 0, 4),), launch=1, mode="EXTEND", rows=("b",))
    return step(
        event or Prefill("b"), (A, fresh if later else gone("b", done=0)), (A, fresh), config=config, receipt=receipt,
        running=("a",), pool=replace(pool((A, fresh)), num_pages=pages),
        old={"pool": replace(view, free_pages=view.free_pages[:free])},
    )  # fmt: skip


def ended(cached: int, **changes: object) -> Step:
    """`a` ends with 11 committed tokens, of which the tree has `cached` positions."""
    view = finished("a", **changes)  # type: ignore[arg-type]
    return step(Settle(), (A,), (view,), settled=(asked("a"),), cached=(path("a", cached),))


def extended(protected: int, launch: Launched | None = None, before: int = 0) -> Step:
    """The result of an extend of 4 tokens leaves `protected` of them with the tree."""
    then, now = req(done=0, cache_protected_len=before), req(done=1, cache_protected_len=protected)
    known = launch or replace(asked("a", mode="EXTEND", extended=("a",)), admitted=(("a", 0, 4),))
    return step(Settle(), (then,), (now,), settled=(known,))


def hit(prefix: int, *cached: CachedPath) -> Step:
    """`a` is admitted with that prefix while the tree holds these paths."""
    receipt = Receipt(admitted=(("a", prefix, 4 - prefix),), launch=1, mode="EXTEND", rows=("a",))
    return step(
        Prefill("a"), (gone(done=0),), (req(done=0, kv_allocated_len=4),), receipt=receipt,
        old={"pool": pool((), cached=cached)},
    )  # fmt: skip


PATHS = (path("b", 3), path("c", 3, first_slot=4))


def evicted(event: Event, free: int, left: int, tokens: int, receipt: Receipt | None = None) -> Step:
    """An event takes `tokens` from a tree of two paths and leaves the first `left` of them; `free` pages were free."""
    view = pool((A,), cached=PATHS)
    return step(
        event, (A,), (A,), receipt=replace(receipt or Receipt(), evicted=tokens), cached=PATHS[:left],
        old={"pool": replace(view, free_pages=view.free_pages[:free])},
    )  # fmt: skip


def capped(stop_at: int | None) -> Step:
    """A run of `a` crosses its cap of 8 tokens by two."""
    view = finished("a", output_ids=out("a", 10, stop_at), finished_len=8)
    return step(Settle(), (A,), (view,), receipt=Receipt(finished=(("a", "length", 8),)))


ADMITTED = Receipt(admitted=(("a", 0, 4),))


ROWS: dict[str, Rows] = {
    "retraction-needs-pressure": rows(
        holds=(lambda: gives_way(15), lambda: two_give_way(9), lambda: aborted(7)),
        broken=(
            lambda: gives_way(16),
            lambda: two_give_way(10),
            lambda: aborted(8),
            lambda: short(Receipt(retracted=("b",)), 0, A, B, event=Mix("c")),
        ),
        silent=lambda: short(Receipt(rows=("a", "b")), 0, A, B),
    ),
    "retraction-takes-the-youngest": rows(
        holds=(lambda: gives_way(0), lambda: two_give_way(0)),
        broken=(
            lambda: short(Receipt(rows=("b",), retracted=("a",)), 0, SENIOR, B),
            lambda: short(Receipt(retracted=("a", "b")), 0, SENIOR, B),
        ),
        silent=lambda: aborted(0),
    ),
    "retraction-leaves-a-row": rows(
        holds=(
            lambda: gives_way(0),
            lambda: short(Receipt(retracted=("b",), finished=(("a", "abort", None),)), 0, A, B),
        ),
        broken=lambda: short(Receipt(retracted=("b", "a")), 0, A, B),
        silent=lambda: aborted(0),
    ),
    "skip-waits-for-a-finish": rows(
        holds=(skipped, lambda: skipped(8, skips=False), lambda: skipped(done=6, skips=False)),
        broken=(
            lambda: skipped(8),
            lambda: skipped(done=6),
            lambda: skipped(dropped=()),
            lambda: skipped(skips=False),
        ),
        silent=(lambda: gives_way(0), lambda: skipped(dropped=(), skips=False)),
    ),
    "admission-leaves-room": rows(
        holds=(lambda: admitted(12), lambda: admitted(13, event=Mix("b"), config=CHUNKED)),
        broken=(lambda: admitted(11), lambda: admitted(12, event=Mix("b"), config=CHUNKED)),
        silent=lambda: admitted(0, later=True),
    ),
    "settled-text-is-cached": rows(
        holds=(lambda: ended(10), lambda: ended(5, reason="stop", finished_len=2), lambda: extended(3)),
        broken=(
            lambda: ended(9),
            lambda: ended(4, reason="stop", finished_len=2),
            lambda: extended(2),
            lambda: extended(4),
            lambda: extended(3, asked("a")),
        ),
        silent=(lambda: extended(0, asked("b")), lambda: step(Settle(), (A,), (finished(),))),
    ),
    "prefill-hits-what-is-cached": rows(
        holds=(lambda: hit(2, path("a", 3)), lambda: hit(1, path("a", 1), path("b", 3))),
        broken=(lambda: hit(1, path("a", 3)), lambda: hit(0, path("b", 3), path("a", 1))),
        silent=(lambda: hit(0), lambda: hit(0, path("b", 3))),
    ),
    "eviction-is-needed": rows(
        holds=(
            lambda: evicted(Prefill("a"), 4, 1, 3, ADMITTED),
            lambda: evicted(Prefill("a"), 1, 0, 6, ADMITTED),
            lambda: evicted(Prepare(), 7, 1, 3),
            lambda: evicted(Evict(1), 50, 1, 3),
        ),
        broken=(
            lambda: evicted(Prefill("a"), 5, 1, 3, ADMITTED),
            lambda: evicted(Prefill("a"), 3, 0, 6, ADMITTED),
            lambda: evicted(Prepare(), 9, 1, 3),
            lambda: evicted(Evict(1), 50, 0, 6),
        ),
        silent=lambda: evicted(Prepare(), 0, 2, 0),
    ),
}

GOALS: dict[str, tuple[Row, Row]] = {
    "stop-behind-the-cap": (lambda: capped(stop_at=8), lambda: capped(stop_at=None)),
    "row-fits-nowhere": (lambda: aborted(0), lambda: gives_way(0)),
    "decode-skipped": (skipped, lambda: gives_way(0)),
    "prefill-under-pressure": (lambda: admitted(12, free=7), lambda: admitted(12)),
}
