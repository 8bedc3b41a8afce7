"""Which request may be prefilled now, and how far: prefix match, memory estimate, chunk.

Source: sglang 0.5.23 managers/schedule_policy.py `PrefillAdder`, mem_cache/prefill_budget.py (behaviour).
"""

from __future__ import annotations

from specfuzz.core.lemmas import ceil_align, floor_align
from specfuzz.reference.allocation import Pools
from specfuzz.reference.req import Req
from specfuzz.reference.tree_node import TreeNode

_NO_ROOM = "no room in the KV pool"


class PrefillAdder:
    """Judges one request at a time; lengths are tokens on the host clock. chunk: at most so many, 0 = no bound.

    num_mixed_decode_tokens: running rows that may ride along; the estimate sets one token aside for each.
    """

    def __init__(self, pools: Pools) -> None:
        """pools: where the room is."""
        self.pools = pools
        self.page_size = pools.config.page_size

    def refusal(self, req: Req, chunk: int, num_mixed_decode_tokens: int = 0) -> str | None:
        """Why a waiting request can't be admitted, or None; looks up its prefix.

        One page beyond the whole extend must be free or evictable, strictly: the estimate of upstream without its share
        for future output.
        """
        tree = self.pools.tree_cache
        if self.pools.req_to_token_pool.available_size() == 0:
            return "no free row"
        node = self.match_kv_cache(req)
        tree.lock(req, node)  # what it would match can't be evicted for it
        room = self._room() - num_mixed_decode_tokens
        tree.unlock(req)
        if room <= req.seqlen - req.prefix_len + self.page_size:
            return _NO_ROOM
        return None if self.extend_end(req, chunk) > req.prefix_len else "the chunk is smaller than a page"

    def match_kv_cache(self, req: Req) -> TreeNode:
        """Look up the request's prefix (at least one token is always extended) and count it as the tree's part."""
        req.refresh_fill_ids()
        tokens = req.full_untruncated_fill_ids[:-1]
        req.prefix_len, req.last_node = self.pools.tree_cache.match_prefix(tokens)
        req.kv.cache_protected_len = req.prefix_len
        return req.last_node

    def extend_end(self, req: Req, chunk: int) -> int:
        """Where a first extend ends: with the text, or at a page boundary where the chunk cuts it.

        A request that fits its chunk with its last page filled up isn't cut.
        """
        if not chunk or ceil_align(req.seqlen - req.prefix_len, self.page_size) <= chunk:
            return req.seqlen
        return floor_align(req.prefix_len + floor_align(chunk, self.page_size), self.page_size)

    def chunk_refusal(self, req: Req, chunk: int, num_mixed_decode_tokens: int = 0) -> str | None:
        """Why the chunked request can't go on, or None: it needs the pages of its window, and no row.

        Upstream doesn't look: it fails in the allocation ("Prefill out of memory"), and the server with it.
        """
        end = self.chunk_end(req, chunk, num_mixed_decode_tokens)
        needed = ceil_align(end, self.page_size) - ceil_align(req.prefix_len, self.page_size)
        return None if needed <= self._room() else _NO_ROOM

    def chunk_end(self, req: Req, chunk: int, num_mixed_decode_tokens: int = 0) -> int:
        """Where the next chunk of a chunked request ends; the pool may make it shorter than it was asked to be.

        Not where nothing is left: it must get on, or its KV is never given back. Its last page may have room.
        """
        left, room = req.seqlen - req.prefix_len, self._room() - num_mixed_decode_tokens
        wanted = min(left, chunk or left)
        return req.prefix_len + (min(wanted, room) if room > 0 else wanted)

    def _room(self) -> int:
        return self.pools.allocator.available_size() + self.pools.tree_cache.evictable_size
