"""Tables of the oracles in `oracles/kv_allocator.py` and the structural ones in `radix_cache.py`."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.event import Evict, Idle, Settle
from specfuzz.core.oracle import Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import CachedPath, PoolView, ReqView
from tests.oracles.build import EAGLE, PAGED, EngineConfig, finished, out, path, pool, req, step
from tests.oracles.forwards import asked
from tests.oracles.rows import Rows, rows

A, B = req("a"), req("b")
TREE = (path("c", 3),)
#: `a` with the first three positions of its row in the tree.
HIT = replace(A, cache_protected_len=3, slots=(1, 2, 3, *A.slots[3:]))
HIT_TREE = (path("a", 3),)


def after(view: PoolView, *reqs: ReqView, config: EngineConfig = EAGLE, **more: object) -> Step:
    """A step that ends with this pool."""
    held = reqs or (A, B)
    return step(Evict(1), held, held, config=config, pool=view, **more)  # type: ignore[arg-type]


def fine(**changes: object) -> PoolView:
    """The pool of `a`, `b` and a cached path, changed so."""
    return pool((A, B), EAGLE, TREE, **changes)  # type: ignore[arg-type]


def unchanged() -> Step:
    """The pool view is the one from before."""
    seen = fine()
    return after(seen, old={"pool": seen})


def slots(view: ReqView) -> Step:
    """A settle that gives `a` these slots, on pages of four."""
    return step(Settle(), (req(reserve=0),), (view,), config=PAGED)


def idle(reqs: tuple[ReqView, ...], **changes: object) -> Step:
    """An idle event that ends with that pool."""
    return step(Idle(), reqs, reqs, pool=pool(reqs, EAGLE, TREE, **changes))  # type: ignore[arg-type]


def ended(length: int, view: ReqView, cached: tuple[CachedPath, ...] | None = None) -> Step:
    """`a` ends as `view` and leaves `length` slots in the tree."""
    paths = (path("a", length),) if cached is None else cached
    seen = pool((view,), EAGLE, paths)
    return step(Settle(), (A,), (view,), pool=seen, settled=(asked("a"),), old={"pool": pool((A,))})


def evict(before: tuple[CachedPath, ...], now: tuple[CachedPath, ...], evicted: int, **changes: object) -> Step:
    """An eviction of one token."""
    seen = pool((A,), EAGLE, now, **changes)  # type: ignore[arg-type]
    return step(
        Evict(1), (A,), (A,), pool=seen, receipt=Receipt(evicted=evicted), old={"pool": pool((A,), EAGLE, before)}
    )


FREE = fine().free_pages
STOPPED = finished(reason="stop", done=6, finished_len=4, output_ids=out("a", 6))
ROWS: dict[str, Rows] = {
    "pages-are-conserved": rows(
        holds=lambda: after(fine()),
        broken=(lambda: after(fine(free_pages=FREE[1:])), lambda: after(fine(free_pages=(*FREE, A.slots[0])))),
        silent=unchanged,
    ),
    "free-list-is-distinct": rows(
        holds=(lambda: after(fine()), lambda: after(fine(free_pages=FREE[1:]))),
        broken=(
            lambda: after(fine(free_pages=(*FREE, FREE[0]))),
            lambda: after(fine(free_pages=(*FREE[1:], 0))),
            lambda: after(fine(free_pages=(*FREE[1:], 101))),
        ),
        silent=unchanged,
    ),
    "owned-pages-are-not-free": rows(
        holds=(lambda: after(fine()), lambda: after(fine(free_pages=FREE[1:]))),
        broken=(lambda: after(fine(free_pages=(*FREE, A.slots[0]))), lambda: after(fine(free_pages=(*FREE, 2)))),
        silent=unchanged,
    ),
    "page-has-one-owner": rows(
        holds=(lambda: after(fine()), lambda: after(pool((A, B), PAGED), config=PAGED)),
        broken=(
            lambda: after(fine(), A, replace(B, slots=(A.slots[0], *B.slots[1:]))),
            lambda: after(fine(), replace(A, slots=(A.slots[1], *A.slots[1:])), B),
        ),
        silent=(unchanged, lambda: after(pool((finished(),)), finished())),
    ),
    "padding-is-never-owned": rows(
        holds=(lambda: after(fine()), lambda: after(fine(free_pages=FREE[1:]))),
        broken=(
            lambda: after(fine(), replace(A, slots=(0, *A.slots[1:])), B),
            lambda: after(pool((A, B), EAGLE, (path("c", 3, first_slot=0),))),
        ),
        silent=unchanged,
    ),
    "slots-keep-their-page-offset": rows(
        holds=lambda: slots(req(kv_allocated_len=14)),
        broken=(
            lambda: slots(req(slots=tuple(range(9, 23)))),
            lambda: slots(req(slots=(8, 9, 10, 11, 16, 17, 19, 18, *range(20, 26)))),
        ),
        silent=(lambda: slots(finished()), lambda: after(fine())),
    ),
    "sizes-add-up": rows(
        holds=lambda: after(fine()),
        broken=(lambda: after(fine(available=1)), lambda: after(fine(evictable=4)), lambda: after(fine(protected=1))),
        silent=unchanged,
    ),
    "idle-pool-is-whole": rows(
        holds=lambda: idle((finished(),)),
        broken=(
            lambda: idle((finished(),), free_pages=FREE[:90]),
            lambda: idle((finished(),), protected=3),
            lambda: idle((finished(),), free_rows=(1, 2, 3)),
        ),
        silent=(lambda: idle((A,)), lambda: idle(())),
    ),
    "tree-and-rows-are-disjoint": rows(
        holds=(lambda: after(fine()), lambda: after(fine(free_pages=FREE[1:]))),
        broken=lambda: after(pool((A, B), EAGLE, (path("c", 3, first_slot=A.slots[0]),))),
        silent=(unchanged, lambda: after(pool((A, B)))),
    ),
    "protected-prefix-is-cached": rows(
        holds=lambda: after(pool((HIT, B), EAGLE, HIT_TREE), HIT, B),
        broken=(lambda: after(pool((HIT, B), EAGLE, (path("a", 2),)), HIT, B), lambda: after(pool((HIT, B)), HIT, B)),
        silent=(unchanged, lambda: after(fine())),
    ),
    "protected-size-is-the-locked-paths": rows(
        holds=(lambda: after(pool((HIT, B), EAGLE, HIT_TREE), HIT, B), lambda: after(fine())),
        broken=(
            lambda: after(pool((HIT, B), EAGLE, HIT_TREE, protected=0, evictable=3), HIT, B),
            lambda: after(fine(protected=3, evictable=0)),
        ),
        silent=unchanged,
    ),
    "protected-len-is-whole-pages": rows(
        holds=lambda: slots(req(cache_protected_len=4)),
        broken=lambda: slots(req(cache_protected_len=3)),
        silent=lambda: slots(finished()),
    ),
    "cached-within-owned": rows(
        holds=(lambda: ended(8, STOPPED), lambda: ended(5, STOPPED), lambda: ended(11, finished())),
        broken=(
            lambda: ended(9, STOPPED),
            lambda: ended(5, finished(done=1, kv_committed_len=4)),
            lambda: ended(0, STOPPED, (CachedPath(tokens=(1, 2, 3), slots=(1, 2)),)),
        ),
        silent=(unchanged, lambda: ended(0, finished(), ())),
    ),
    "evicted-pages-become-free": rows(
        holds=(lambda: evict(TREE, (), 3), lambda: evict((path("c", 3),), (path("c", 2),), 1)),
        broken=(
            lambda: evict(TREE, (), 2),
            lambda: evict(TREE, TREE, 0),
            lambda: evict(TREE, (), 3, free_pages=pool((A,), EAGLE, TREE).free_pages),
            lambda: evict(TREE, (path("c", 3, first_slot=4),), 0),
        ),
        silent=lambda: evict((), (), 0),
    ),
}
