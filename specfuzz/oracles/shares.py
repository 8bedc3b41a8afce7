"""Who holds which page: shares recomputed from the free list, the tree walk and the rows, once per changed pool."""

from __future__ import annotations

from specfuzz.core.oracle import Step
from specfuzz.core.snapshot import PoolView, ReqView
from specfuzz.oracles.facts import limits


class Shares:
    """Who holds which page, recomputed from the free list, the tree walk and the rows.

    tree_slots, tree: cached slots and their pages (None if the tree can't be walked). holders: requests with a row, by rid.
    total: sum of all shares, a page counted as often as it is held. clean: every page 1..num_pages is held just once,
    which settles most pool rules at one go (a row is read at the first slot of each of its pages).
    """

    __slots__ = ("_page_size", "_private", "clean", "holders", "pool", "total", "tree", "tree_slots")

    def __init__(self, step: Step, pool: PoolView, last: Shares | None) -> None:
        """last: the shares of an earlier pool view of this run, if there are any."""
        self._page_size, self.pool = pool.page_size, pool
        self.clean: bool
        self._private: dict[str, set[int]] | None = None
        self.tree_slots, self.tree = tree_of(step, pool)
        self.holders = {rid: req for rid, req in step.after.reqs.items() if req.req_pool_idx is not None}
        if last is not None and last.clean and pool.cached is last.pool.cached and self._only_took_from(last):
            self.total, self.clean = pool.num_pages, True
            return
        held = [self._pages(req, req.cache_protected_len) for req in self.holders.values()]
        cached = (pool.evictable + pool.protected) // pool.page_size if self.tree is None else len(self.tree)
        self.total = len(pool.free_pages) + cached + sum([len(pages) for pages in held])
        # As many shares as pages and no page without one: then each page has just one.
        self.clean = (
            self.tree is not None
            and self.total == pool.num_pages
            and not every_page(step, pool).difference(pool.free_pages, self.tree, *held)
        )

    def _pages(self, req: ReqView, start: int) -> tuple[int, ...]:
        size = self._page_size
        return req.slots[start:] if size == 1 else tuple([slot // size for slot in req.slots[start::size]])

    def _only_took_from(self, last: Shares) -> bool:
        """Whether since then rows have only grown, by just the pages that have left one end of the free list."""
        free, free_then = self.pool.free_pages, last.pool.free_pages
        left = len(free)
        count = len(free_then) - left
        if count >= 0 and free_then[:left] == free:
            gone = free_then[left:]
        elif count > 0 and free_then[count:] == free:
            gone = free_then[:count]
        else:
            return False
        size, held_then, known = self._page_size, last.holders, 0
        taken: list[int] = []
        for rid, req in self.holders.items():
            old = held_then.get(rid)
            if old is None:
                taken += self._pages(req, req.cache_protected_len)
                continue
            known += 1
            if old is req:
                continue
            start, done = req.cache_protected_len, len(old.slots)
            if start != old.cache_protected_len or req.slots[:done] != old.slots:
                return False
            taken += self._pages(req, start + -(-(done - start) // size) * size)
        return known == len(held_then) and sorted(taken) == sorted(gone)

    @property
    def private(self) -> dict[str, set[int]]:
        """By rid, the pages of positions [cache_protected_len, kv_allocated_len), each slot looked at."""
        if self._private is None:
            self._private = {
                rid: pages_of(req.slots[req.cache_protected_len :], self._page_size)
                for rid, req in self.holders.items()
            }
        return self._private


def every_page(step: Step, pool: PoolView) -> frozenset[int]:
    """The pages that the allocator may hand out: 1..num_pages."""
    known: frozenset[int] | None = step.memo.get("every-page")
    if known is None:
        known = step.memo["every-page"] = frozenset(range(1, pool.num_pages + 1))
    return known


def every_row(step: Step, pool: PoolView) -> frozenset[int]:
    """The rows that the table may hand out: 1..max_reqs."""
    known: frozenset[int] | None = step.memo.get("every-row")
    if known is None:
        known = step.memo["every-row"] = frozenset(range(1, pool.max_reqs + 1))
    return known


def tree_of(step: Step, pool: PoolView) -> tuple[set[int] | None, set[int] | None]:
    """(cached slots, their pages); kept while the tree's walk is the same."""
    if pool.cached is None:
        return (None, None) if limits(step).radix else (set(), set())
    known: tuple[object, set[int], set[int]] | None = step.memo.get("tree")
    if known is not None and known[0] is pool.cached:
        return known[1], known[2]
    slots: set[int] = set()
    for path in pool.cached:
        slots.update(path.slots)
    pages = slots if pool.page_size == 1 else pages_of(slots, pool.page_size)
    step.memo["tree"] = (pool.cached, slots, pages)
    return slots, pages


def pages_of(slots: set[int] | tuple[int, ...], page_size: int) -> set[int]:
    """The pages in which the slots lie."""
    return set(slots) if page_size == 1 else {slot // page_size for slot in slots}


def shares(step: Step, pool: PoolView) -> Shares:
    """The shares of this pool view, computed once per event."""
    known: tuple[int, Shares] | None = step.memo.get("shares")
    if known is not None and known[0] == step.index:
        return known[1]
    found = Shares(step, pool, None if known is None else known[1])
    step.memo["shares"] = (step.index, found)
    return found
