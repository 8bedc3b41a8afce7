"""The prefix tree: KV that outlives its request, in whole pages, with locks and least-recently-used eviction.

With a draft side the keys are bigrams: the draft cell of position i depends on the token at i + 1, so a slot may be
shared only if the next token agrees as well. A sequence of n tokens then has n - 1 keys.
Source: sglang 0.5.23 mem_cache/radix_cache.py (behaviour; the code is our own).
"""

from __future__ import annotations

import heapq
from itertools import count, pairwise

from specfuzz.core.lemmas import floor_align
from specfuzz.reference.kv_allocator import TokenToKVPoolAllocator
from specfuzz.reference.req import Req
from specfuzz.reference.req_to_token_pool import ReqToTokenPool
from specfuzz.reference.tree_node import Key, TreeNode


class RadixCache:
    """Sizes are tokens. evictable + protected = all cached; protected = on a locked path."""

    def __init__(
        self,
        req_to_token_pool: ReqToTokenPool,
        allocator: TokenToKVPoolAllocator,
        *,
        page_size: int,
        is_eagle: bool,
        disable: bool,
    ) -> None:
        """is_eagle: bigram keys. disable: match nothing, keep nothing."""
        self.req_to_token_pool = req_to_token_pool
        self.allocator = allocator
        self.page_size = page_size
        self.is_eagle = is_eagle
        self.disable = disable
        self._ticks = count(1)
        self.root = TreeNode(None, (), [], 0)
        self.evictable_size = 0
        self.protected_size = 0
        self.evicted_tokens = 0
        self.version = 0  # grows whenever the set of cached slots or their keys changes

    # ------------------------------------------------------------------ lookup
    def keys_of(self, token_ids: tuple[int, ...]) -> Key:
        """Page-aligned keys of a token sequence."""
        keys: Key = tuple(pairwise(token_ids)) if self.is_eagle else token_ids
        return keys[: floor_align(len(keys), self.page_size)]

    def match_prefix(self, token_ids: tuple[int, ...]) -> tuple[int, TreeNode]:
        """(matched length, deepest matched node); splits a node that matches in part and touches the path."""
        keys = self.keys_of(token_ids)
        if self.disable or not keys:
            return 0, self.root
        matched, node = self._walk(keys)
        return matched, node

    def path_slots(self, node: TreeNode) -> list[int]:
        """Slots from the root to the node."""
        parts = []
        while node.parent is not None:
            parts.append(node.slots)
            node = node.parent
        return [slot for part in reversed(parts) for slot in part]

    def _walk(self, keys: Key) -> tuple[int, TreeNode]:
        tick, node, position, page = next(self._ticks), self.root, 0, self.page_size
        node.last_access = tick
        while position < len(keys):
            child = node.children.get(keys[position : position + page])
            if child is None:
                break
            child.last_access = tick
            common = self._common(child.keys, keys, position)
            position += common
            if common < len(child.keys):
                return position, self._split(child, common)
            node = child
        return position, node

    def _common(self, keys: Key, other: Key, offset: int) -> int:
        if keys == other[offset : offset + len(keys)]:
            return len(keys)  # nodes are whole pages
        length = 0
        for mine, theirs in zip(keys, other[offset : offset + len(keys)], strict=False):
            if mine != theirs:
                break
            length += 1
        return floor_align(length, self.page_size)

    def _split(self, child: TreeNode, length: int) -> TreeNode:
        """The new upper half of `child`; the lower half stays the same object, so locks keep pointing at it."""
        parent, page = child.parent, self.page_size
        assert parent is not None
        upper = TreeNode(parent, child.keys[:length], child.slots[:length], next(self._ticks))
        upper.lock_ref = child.lock_ref
        child.keys, child.slots, child.parent = child.keys[length:], child.slots[length:], upper
        upper.children[child.keys[:page]] = child
        parent.children[upper.keys[:page]] = upper
        return upper

    # ------------------------------------------------------------------ insertion
    def _insert(self, keys: Key, slots: list[int]) -> int:
        """Insert keys with their slots; returns how much was there already."""
        if not keys:
            next(self._ticks)
            return 0
        matched, node = self._walk(keys)
        if matched < len(keys):
            fresh = TreeNode(node, keys[matched:], slots[matched:], next(self._ticks))
            node.children[fresh.keys[: self.page_size]] = fresh
            self.evictable_size += len(fresh.keys)
            self.version += 1
        return matched

    def checkpoint(self, req: Req, up_to: int) -> None:
        """Hand [cache_protected_len, up_to) of the row to the tree, cut to whole pages, and lock the path.

        Slots that the tree already had are freed and the row is rewritten to the tree's own.
        """
        if self.disable:
            return
        row, protected = req.kv.req_pool_idx, req.kv.cache_protected_len
        assert row is not None
        token_ids = req.full_untruncated_fill_ids[:up_to]
        keys = self.keys_of(token_ids)
        slots = self.req_to_token_pool.read(row, 0, len(keys))
        matched = self._insert(keys, slots)
        # Split at the prompt's end, so that eviction can drop the output and keep the prompt.
        prompt_keys = self.keys_of(token_ids[: len(req.origin_input_ids)])
        if 0 < len(prompt_keys) < len(keys):
            self._insert(prompt_keys, slots[: len(prompt_keys)])
        if matched > protected:
            self.allocator.free(slots[protected:matched])
        _, node = self.match_prefix(token_ids)
        canonical = self.path_slots(node)
        if canonical[protected:] != slots[protected:]:
            self.req_to_token_pool.write([(row, protected, canonical[protected:])])
        req.kv.cache_protected_len = len(canonical)
        self.unlock(req)
        self.lock(req, node)

    # ------------------------------------------------------------------ locks and eviction
    def lock(self, req: Req, node: TreeNode) -> None:
        """Protect the path to the node for the request."""
        req.last_node = req.lock = node
        walk: TreeNode = node
        while walk.parent is not None:
            if walk.lock_ref == 0:
                self.evictable_size -= len(walk.keys)
                self.protected_size += len(walk.keys)
            walk.lock_ref += 1
            walk = walk.parent

    def unlock(self, req: Req) -> None:
        """Drop the request's lock, if it has one."""
        node, req.lock = req.lock, None
        while node is not None and node.parent is not None:
            node.lock_ref -= 1
            if node.lock_ref == 0:
                self.evictable_size += len(node.keys)
                self.protected_size -= len(node.keys)
            node = node.parent

    def evict(self, num_tokens: int) -> int:
        """Free whole leaves, least recently used first, until num_tokens are out or nothing can go; returns tokens."""
        leaves = [(node.last_access, node.born, node) for node in self._nodes() if _evictable_leaf(node)]
        heapq.heapify(leaves)
        evicted = 0
        while evicted < num_tokens and leaves:
            _, _, node = heapq.heappop(leaves)
            self.allocator.free(node.slots)
            evicted += len(node.slots)
            self.evictable_size -= len(node.slots)
            parent = node.parent
            assert parent is not None
            del parent.children[node.keys[: self.page_size]]
            if _evictable_leaf(parent):
                heapq.heappush(leaves, (parent.last_access, parent.born, parent))
        self.evicted_tokens += evicted
        self.version += bool(evicted)
        return evicted

    def evict_to_free_tokens(self, num_tokens: int) -> None:
        """Evict just enough that num_tokens are available, if that is possible."""
        short = num_tokens - self.allocator.available_size()
        if short > 0 and not self.disable:
            self.evict(short)

    def _nodes(self) -> list[TreeNode]:
        found, stack = [], list(self.root.children.values())
        while stack:
            node = stack.pop()
            found.append(node)
            stack += node.children.values()
        return found

    def paths(self) -> list[tuple[Key, list[int]]]:
        """(keys, slots) from the root to every leaf."""
        found: list[tuple[Key, list[int]]] = []
        stack: list[tuple[Key, list[int], TreeNode]] = [((), [], child) for child in self.root.children.values()]
        while stack:
            keys, slots, node = stack.pop()
            keys, slots = keys + node.keys, slots + node.slots
            if not node.children:
                found.append((keys, slots))
            stack += [(keys, slots, child) for child in node.children.values()]
        return found


def _evictable_leaf(node: TreeNode) -> bool:
    return node.parent is not None and not node.children and node.lock_ref == 0
