"""The shape of a draft tree (topk > 1) in pure integers, shared by the engine that drafts it and by its judges.

A tree has a root, the pending bonus at the frontier C, and `topk` branches of `spec_steps` levels. Level l stands for
position C + l. Branch t goes on from its own best proposal of every level; beside it stand topk - 1 alternatives, which
nothing goes on from. With `topk` seeds on level 1 that are topk + (spec_steps - 1) * topk^2 candidates, numbered as
SGLang numbers them: level by level, branch by branch, alternative by alternative. The `draft_token_num` - 1 best of
them are verified, in the order of their numbers, behind the root as node 0.
One branch is the right one. Which one it is follows from the request and its round, whose name is the frontier at which
it starts: unique as long as a request keeps its row, and known on the device without asking the host.
Source: sglang 0.5.23 speculative/eagle_utils organize_draft_results, eagle_worker_common prepare_for_draft (behaviour).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from zlib import crc32

from specfuzz.core.language import TOKEN_MASK, TOKEN_SHIFT, mix, unembed
from specfuzz.core.lemmas import ceil_align, floor_align

#: Bits above FLIP_BIT tell siblings apart: a sibling is the best proposal with its own number mixed in from here on.
SIBLING_SHIFT = 21


def most_nodes(topk: int, spec_steps: int) -> int:
    """Root and candidates of a whole tree: the largest draft_token_num that it can fill."""
    return 1 + topk + (spec_steps - 1) * topk * topk


# ------------------------------------------------------------------------------------------------------------ proposals
@lru_cache(maxsize=1024)
def branch_key(rid: str) -> int:
    """What stands for a request where its right branch is chosen, non-negative and below 2^32."""
    return crc32(rid.encode())


def right_branch(rid: str, frontier: int, topk: int) -> int:
    """The branch that the right path lies in, in the round that starts at `frontier`."""
    return ((mix(branch_key(rid), frontier) >> TOKEN_SHIFT) & TOKEN_MASK) % topk


def sibling_flip(number: int) -> int:
    """XOR from the best proposal to its number-th sibling, 0 for itself; distinct, and never a flipped proposal."""
    return number << SIBLING_SHIFT


def seeds(hidden: int, branch: int, topk: int) -> tuple[int, ...]:
    """The relayed first proposals, one per branch, of a draft in state `hidden`: the best one on the right branch."""
    best = unembed(hidden)
    return tuple(best ^ sibling_flip((t - branch) % topk) for t in range(topk))


# ---------------------------------------------------------------------------------------------------------------- shape
@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A proposal that is verified. level: 1 to spec_steps. alternative: 0 is the branch's own best. parent: a node."""

    level: int
    branch: int
    alternative: int
    parent: int

    def number(self, topk: int) -> int:
        """Its number among the candidates."""
        if self.level == 1:
            return self.branch
        return topk + (self.level - 2) * topk * topk + self.branch * topk + self.alternative


@lru_cache(maxsize=256)
def nodes_of(topk: int, spec_steps: int, draft_token_num: int, branch: int) -> tuple[Node, ...]:
    """Nodes 1 to draft_token_num - 1 of the tree whose right branch is `branch`; node 0 is the root, without a record.

    The right path is best; then the closer a candidate is to the root, to the right branch and to its branch's own best
    proposal, the better. A candidate is worse than the one that it goes on from, so every parent is verified too.
    """

    def cost(node: Node) -> tuple[int, int]:
        on_right_path = node.branch == branch and not node.alternative
        distance = node.level + node.alternative + (node.branch - branch) % topk
        return 0 if on_right_path else distance, node.number(topk)

    candidates = [Node(level=1, branch=t, alternative=0, parent=0) for t in range(topk)]
    candidates += [
        Node(level=level, branch=t, alternative=c, parent=0)
        for level in range(2, spec_steps + 1) for t in range(topk) for c in range(topk)
    ]  # fmt: skip
    chosen = sorted(sorted(candidates, key=cost)[: draft_token_num - 1], key=lambda node: node.number(topk))
    place = {(node.level, node.branch): at for at, node in enumerate(chosen, 1) if not node.alternative}
    return tuple(replace(node, parent=0 if node.level == 1 else place[node.level - 1, node.branch]) for node in chosen)


def right_path(topk: int, spec_steps: int, draft_token_num: int, branch: int) -> tuple[int, ...]:
    """Nodes of the right path by level, the root first: what accept_index holds of a round that accepts everything."""
    nodes = nodes_of(topk, spec_steps, draft_token_num, branch)
    return (0, *(at for at, node in enumerate(nodes, 1) if node.branch == branch and not node.alternative))


# ------------------------------------------------------------------------------------------------- where branches write
def branch_stride(frontier: int, page_size: int, spec_steps: int) -> int:
    """Positions from one branch to the next: whole pages, the first of which starts with the prefix's partial page."""
    return ceil_align(frontier % page_size + spec_steps, page_size)


def branches_end(frontier: int, page_size: int, spec_steps: int, topk: int) -> int:
    """End of the positions that the branches of a round take, from the start of the frontier's page on."""
    return floor_align(frontier, page_size) + topk * branch_stride(frontier, page_size, spec_steps)
