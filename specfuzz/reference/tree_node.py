"""A node of the prefix tree: what a request locks and what the tree links."""

from __future__ import annotations

from typing import Any

#: Keys of an edge: token ids, or bigrams of them with a draft side.
Key = tuple[Any, ...]


class TreeNode:
    """An edge of the tree: keys and the slots that hold them. lock_ref counts requests at or below it."""

    __slots__ = ("born", "children", "keys", "last_access", "lock_ref", "parent", "slots")

    def __init__(self, parent: TreeNode | None, keys: Key, slots: list[int], tick: int) -> None:
        """parent: None for the root. tick: the tree's own clock, for least-recently-used eviction."""
        self.parent = parent
        self.keys = keys
        self.slots = slots
        self.children: dict[Key, TreeNode] = {}
        self.lock_ref = 0
        self.last_access = self.born = tick
