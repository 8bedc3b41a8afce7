"""How batches take and give back KV: extend, plain decode, speculative reserve, release.

Every method works on the host ledger and enqueues row writes on the schedule stream.
Source: sglang 0.5.23 mem_cache/allocation.py, mem_cache/common.py, speculative/eagle_utils.py (behaviour).
"""

from __future__ import annotations

from dataclasses import dataclass

from specfuzz.core.config import EngineConfig
from specfuzz.core.lemmas import ceil_align, reserved_len
from specfuzz.reference.kv_allocator import TokenToKVPoolAllocator
from specfuzz.reference.radix_cache import RadixCache
from specfuzz.reference.req import Req
from specfuzz.reference.req_to_token_pool import ReqToTokenPool


@dataclass
class Pools:
    """The three owners of memory, and the paths that need them together. All lengths are tokens on the host clock."""

    config: EngineConfig
    req_to_token_pool: ReqToTokenPool
    allocator: TokenToKVPoolAllocator
    tree_cache: RadixCache

    def alloc_for_extend(self, req: Req, seq_len: int) -> list[int]:
        """Row and slots for positions [prefix_len, seq_len); commits them. Returns out_cache_loc.

        A later chunk goes on in the row that the chunk before it has filled up to prefix_len.
        """
        page_size = self.config.page_size
        extend_len = seq_len - req.prefix_len
        # With pages, one page more than needed: upstream's conservative estimate, part of its eviction behaviour.
        self.tree_cache.evict_to_free_tokens(extend_len if page_size == 1 else extend_len + page_size)
        prefix: list[int] = []
        if not req.kv.holds_kv:
            assert req.last_node is not None
            prefix = self.tree_cache.path_slots(req.last_node)
        self.req_to_token_pool.alloc(req)
        row = req.kv.req_pool_idx
        assert row is not None
        last_slot = prefix[-1] if prefix else self._last_slot(row, req.prefix_len)
        slots = self.allocator.alloc_extend(req.prefix_len, seq_len, last_slot)
        assert slots is not None, "admission promised the pages"
        self.req_to_token_pool.write([(row, req.prefix_len - len(prefix), prefix + slots)])
        req.kv.kv_committed_len = req.kv.kv_allocated_len = seq_len
        return slots

    def alloc_for_decode(self, reqs: list[Req]) -> list[int]:
        """Plain decode: one slot per row at its next position, claimed at once. Returns out_cache_loc."""
        page_size = self.config.page_size
        self.tree_cache.evict_to_free_tokens(len(reqs) * page_size)
        out_cache_loc, segments = [], []
        for req in reqs:
            position = req.kv.kv_allocated_len
            row = req.kv.req_pool_idx
            assert row is not None
            slots = self.allocator.alloc_extend(position, position + 1, self._last_slot(row, position))
            assert slots is not None, "the memory check promised the page"
            segments.append((row, position, slots))
            out_cache_loc += slots
            req.kv.kv_committed_len += 1
            req.kv.kv_allocated_len += 1
        self.req_to_token_pool.write(segments)
        return out_cache_loc

    def alloc_for_spec_decode(self, reqs: list[Req]) -> None:
        """Speculative prepare: reserve, never commit."""
        config = self.config
        targets = [self._reserve_target(req) for req in reqs]
        needed = sum(targets) - sum([req.kv.kv_allocated_len for req in reqs])
        if needed:
            slack = 0 if config.page_size == 1 else len(reqs) * config.page_size
            self.tree_cache.evict_to_free_tokens(needed + slack)
        segments = []
        for target, req in zip(targets, reqs, strict=True):
            row, allocated = req.kv.req_pool_idx, req.kv.kv_allocated_len
            assert row is not None
            slots = self.allocator.alloc_extend(allocated, target, self._last_slot(row, allocated))
            assert slots is not None, "the memory check promised the pages"
            segments.append((row, allocated, slots))
            req.kv.kv_allocated_len = max(req.kv.kv_allocated_len, target)
        self.req_to_token_pool.write(segments)

    def tokens_required_next_decode(self, reqs: list[Req]) -> int:
        """What the next prepare of these rows takes from the free pages, in tokens."""
        config = self.config
        if not config.speculative:
            return config.page_size * sum(req.kv.kv_committed_len % config.page_size == 0 for req in reqs)
        page_size, needed = config.page_size, 0
        for req in reqs:
            needed += ceil_align(self._reserve_target(req), page_size) - ceil_align(req.kv.kv_allocated_len, page_size)
        return needed

    def check_decode_mem(self, reqs: list[Req]) -> bool:
        """Whether the next decode of these rows fits, after evicting what can go."""
        needed = self.tokens_required_next_decode(reqs)
        self.tree_cache.evict_to_free_tokens(needed)
        return self.allocator.available_size() >= needed

    def release_kv_cache(self, req: Req, *, checkpoint: bool) -> None:
        """Give up the row: cache [protected, owned) if asked to, free the rest of [protected, allocated), free the row.

        The only path by which a request loses its KV. Frees of the owned part and of the over-allocation never share a
        page: the first takes its whole last page, the second starts at the next boundary.
        """
        row, owned = req.kv.req_pool_idx, req.owned_kv_len()
        assert row is not None
        if checkpoint:
            req.refresh_fill_ids()
            self.tree_cache.checkpoint(req, owned)
        table = self.req_to_token_pool
        self.allocator.free(table.read(row, req.kv.cache_protected_len, owned))
        self.tree_cache.unlock(req)
        self.release_overallocated(req, owned)
        table.free(req)
        req.kv.kv_allocated_len = 0

    def release_overallocated(self, req: Req, owned: int) -> None:
        """Free the reserve [ceil(owned), allocated) of a row that is being released."""
        row = req.kv.req_pool_idx
        assert row is not None
        start = ceil_align(owned, self.config.page_size)
        self.allocator.free(self.req_to_token_pool.read(row, start, req.kv.kv_allocated_len))

    def _reserve_target(self, req: Req) -> int:
        kv, config = req.kv, self.config
        return reserved_len(kv.kv_committed_len, kv.kv_allocated_len, config.reserve_per_decode, config.page_size)

    def _last_slot(self, row: int, position: int) -> int:
        return self.req_to_token_pool.read(row, position - 1, position)[0] if position else -1
