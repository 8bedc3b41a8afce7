"""The draft side of trees (topk > 1) on arrays: seeds, and a draft in which every branch has KV of its own.

Like `model`: int64 that wraps, no control flow that depends on device data. bs rows, T = topk, S = levels, K = nodes
that are verified. What a tree looks like stands in core.draft_tree; here it lies in tables by right branch.
Source: sglang 0.5.23 speculative/eagle_worker_v2 draft_forward, eagle_worker_common prepare_for_draft (behaviour).
"""

from __future__ import annotations

from typing import Any

from specfuzz.core.draft_tree import nodes_of, sibling_flip
from specfuzz.core.language import FLIP_BIT, STOP_TOKEN
from specfuzz.gpu.arrays import Array, Arrays
from specfuzz.gpu.races import Access
from specfuzz.reference.model import Weights


class Tree:
    """The trees of one configuration as int64 tables on the device; the first dimension is the right branch.

    seed_flips: (T, T) XOR from the best seed to that of each branch. wrong: (T, T) XOR that makes a proposal of the
    right branch wrong, 0 beside it. columns: (T, K - 1) of each draft node, its branch's place among (level, branch)
    proposals; flips: (T, K - 1) XOR from there to the node. depths, parents: (T, K) by node, the root's parent is
    itself. ancestors: (T, K, K) 1 where the first node attends to the second one: itself and all above it, the root
    included.
    """

    __slots__ = (
        "_lanes", "_positions", "ancestors", "columns", "depths", "flips", "num_nodes", "page_size", "parents",
        "seed_flips", "steps", "topk", "wrong",
    )  # fmt: skip

    def __init__(self, topk: int, steps: int, num_nodes: int, page_size: int, arrays: Arrays) -> None:
        """steps: levels. num_nodes: with the root. page_size: tokens per page of the allocator."""
        self.topk, self.steps, self.num_nodes, self.page_size = topk, steps, num_nodes, page_size
        shapes = [nodes_of(topk, steps, num_nodes, branch) for branch in range(topk)]

        def table(values: list[Any]) -> Array:
            return arrays.shared(arrays.array(values))

        self.seed_flips = table([[sibling_flip((t - b) % topk) for t in range(topk)] for b in range(topk)])
        self.wrong = table([[FLIP_BIT * (t == b) for t in range(topk)] for b in range(topk)])
        self.columns = table([[(n.level - 1) * topk + n.branch for n in nodes] for nodes in shapes])
        self.flips = table([[sibling_flip(n.alternative) for n in nodes] for nodes in shapes])
        self.depths = table([[0, *(n.level for n in nodes)] for nodes in shapes])
        parents = [[0, *(n.parent for n in nodes)] for nodes in shapes]
        self.parents = table(parents)
        self.ancestors = table([_ancestors(line) for line in parents])
        self._lanes: dict[int, Array] = {}
        self._positions: dict[int, Array] = {}

    def lanes(self, weights: Weights, seq_lens: Array) -> Array:
        """Positions in the row to which the branches write, level by level: (bs, T * S). seq_lens: (bs,) = C."""
        table = self._lanes.get(weights.width)
        if table is None:
            xp = weights.arrays
            heads, tail = _branch_heads(weights, self, xp.arange(weights.width + 1))
            table = (heads + tail[:, None])[:, :, None] + xp.arange(self.steps)
            table = self._lanes[weights.width] = xp.shared(table.reshape(weights.width + 1, -1))
        return weights.arrays.rows(table, seq_lens)

    def positions(self, weights: Weights, seq_lens: Array) -> Array:
        """C + level, the same for all branches: (bs, S + 1, T). seq_lens: (bs,) = C."""
        table = self._positions.get(weights.width)
        if table is None:
            xp = weights.arrays
            ahead = xp.arange(weights.width + 1)[:, None] + xp.arange(self.steps + 1)
            table = self._positions[weights.width] = xp.shared(ahead[:, :, None] + xp.full((self.topk,), 0))
        return weights.arrays.rows(table, seq_lens)


def tree_of(topk: int, steps: int, num_nodes: int, page_size: int, arrays: Arrays) -> Tree:
    """The tables of that shape, made once per face."""
    shape = (topk, steps, num_nodes, page_size)
    found: Tree = arrays.kept((Tree, shape), lambda: Tree(*shape, arrays))
    return found


def _ancestors(parents: list[int]) -> list[list[int]]:
    """One line per node: 1 at itself and at all nodes above it. A parent's number is smaller than its child's."""
    lines: list[list[int]] = []
    for node, parent in enumerate(parents):
        line = lines[parent][:] if node else [0] * len(parents)
        line[node] = 1
        lines.append(line)
    return lines


def right_branches(weights: Weights, keys: list[int], frontier: Array, topk: int) -> Array:
    """(bs,) the branch with the right path of the round that starts at `frontier`; equals draft_tree.right_branch."""
    return weights.token_bits(weights.mix(weights.arrays.array(keys), frontier)) % topk


def seeds_kernel(
    access: Access, weights: Weights, tree: Tree, best: Array, keys: list[int], frontier: Array, topk_index: Array
) -> None:
    """The draft's topk after its last extend: one seed per branch for the round that starts at `frontier`.

    best: (bs,) the draft's first proposal. keys: branch keys of the requests. topk_index: (bs, T), written.
    """
    xp = weights.arrays
    access.read(best, None)
    access.read(frontier, None)
    flips = xp.rows(tree.seed_flips, right_branches(weights, keys, frontier, tree.topk))
    topk_index[...] = xp.spread(best, tree.topk) ^ flips
    access.write(topk_index, None)


def draft_tree_kernel(
    access: Access,
    weights: Weights,
    tree: Tree,
    draft_kv: Array,
    kv_indices: Array,
    seq_lens: Array,
    bonus_tokens: Array,
    topk_index: Array,
    hidden: Array,
    keys: list[int],
    stop_positions: list[int],
    flip_at: list[int],
    verify_tokens: Array,
    positions: Array,
    parents: Array,
    tree_mask: Array,
    digest_out: Array,
) -> None:
    """Propose a tree per row from the draft state alone; proposal number flip_at[row] of the right path is made wrong.

    Every level writes its KV to the branches' own slots and reads the branch's prefix back through the row: whole pages
    of the prefix, the partial one as each branch has copied it, its own levels. The last level feeds nothing and writes
    nothing. draft_kv: (slots,). kv_indices: (bs, width). seq_lens: (bs,) = C. bonus_tokens, hidden: (bs,), topk_index:
    (bs, T) relayed. keys, stop_positions, flip_at: by row. Written: verify_tokens, positions, parents (bs, K) by node,
    the root first; tree_mask (bs, K, K); digest_out (bs,) = D(C + 1), for the draft-extend of this round.
    """
    xp, topk, steps = weights.arrays, tree.topk, tree.steps
    rows = seq_lens.shape[0]
    for source in (seq_lens, bonus_tokens, topk_index, hidden):
        access.read(source, None)
    access.read(draft_kv, kv_indices)
    right = right_branches(weights, keys, seq_lens, topk)
    digest = _read_prefix(weights, tree, draft_kv, kv_indices, seq_lens)
    digest_out[...] = digest[:, 0]  # branch 0 reads the prefix where it lies
    slots = xp.gather(kv_indices, tree.lanes(weights, seq_lens)).reshape(rows, topk, steps)
    places = tree.positions(weights, seq_lens)
    apart = xp.rows(tree.seed_flips, right)
    wrong = xp.rows(tree.wrong, right)
    # The host knows whether a stop is armed and what is made wrong: mostly nothing on this level.
    stops = xp.array(stop_positions)[:, None] if max(stop_positions) >= 0 else None

    tokens, reduction, below = topk_index, xp.spread(hidden, topk), digest
    proposals = xp.full((rows, steps * topk), 0)
    for level in range(1, steps + 1):
        position = places[:, level]
        if stops is not None:
            tokens = xp.where(position == stops, STOP_TOKEN ^ apart if level == 1 else STOP_TOKEN, tokens)
        if level in flip_at:
            flipped = xp.array([at == level for at in flip_at])
            tokens = tokens ^ (wrong * xp.spread(flipped, topk))
        proposals[:, (level - 1) * topk : level * topk] = tokens
        if level == steps:
            break
        v1 = weights.mix(tokens, position)
        written = slots[:, :, level - 1]
        draft_kv[written] = v1
        access.write(draft_kv, written)
        reduction = reduction + places[:, level + 1] * weights.mix(v1, below)
        read_back = xp.take(draft_kv, slots[:, :, :level])
        below = digest + xp.dot(read_back, places[:, 1 : level + 1, :1].reshape(rows, 1, level))
        tokens = weights.unembed(reduction)

    verify_tokens[:, 0] = bonus_tokens
    verify_tokens[:, 1:] = xp.gather(proposals, xp.rows(tree.columns, right)) ^ xp.rows(tree.flips, right)
    positions[...] = xp.spread(seq_lens, tree.num_nodes) + xp.rows(tree.depths, right)
    parents[...] = xp.rows(tree.parents, right)
    tree_mask[...] = xp.rows(tree.ancestors, right)
    for result in (verify_tokens, positions, parents, tree_mask, digest_out):
        access.write(result, None)


def copy_tails_kernel(
    access: Access, weights: Weights, tree: Tree, draft_kv: Array, kv_indices: Array, seq_lens: Array
) -> None:
    """Copy the prefix's partial page to the head of every further branch's first page, which is read as a whole.

    seq_lens: (bs,) = C. The partial page of branch 0 is the prefix's own.
    """
    access.read(seq_lens, None)
    slots = _tail_slots(weights, tree, kv_indices, seq_lens)
    sources, targets = slots[:, :1], slots[:, 1:]
    access.read(draft_kv, sources)
    draft_kv[targets] = weights.arrays.take(draft_kv, sources)
    access.write(draft_kv, targets)


def _branch_heads(weights: Weights, tree: Tree, seq_lens: Array) -> tuple[Array, Array]:
    """(start of each branch's first page (bs, T), tokens of the prefix in its last, partial page (bs,))."""
    tail = seq_lens % tree.page_size
    stride = (tail + tree.steps + tree.page_size - 1) // tree.page_size * tree.page_size
    return (seq_lens - tail)[:, None] + weights.positions[: tree.topk] * stride[:, None], tail


def _tail_slots(weights: Weights, tree: Tree, kv_indices: Array, seq_lens: Array) -> Array:
    """(bs, T, page_size) slots of the partial page as each branch has it; lanes behind the prefix name slot 0."""
    heads, tail = _branch_heads(weights, tree, seq_lens)
    offsets = weights.positions[: tree.page_size]
    slots = weights.arrays.gather(kv_indices, (heads[:, :, None] + offsets).reshape(len(tail), -1))
    return slots.reshape(len(tail), tree.topk, tree.page_size) * (offsets < tail[:, None])[:, None]


def _read_prefix(weights: Weights, tree: Tree, draft_kv: Array, kv_indices: Array, seq_lens: Array) -> Array:
    """(bs, T) D(C + 1) as each branch reads it: whole pages of the prefix, then its own copy of the partial one."""
    xp = weights.arrays
    base = seq_lens if tree.page_size == 1 else seq_lens - seq_lens % tree.page_size
    whole = xp.spread(xp.dot(xp.take(draft_kv, kv_indices), weights.reduction_below(base)), tree.topk)
    if tree.page_size == 1:
        return whole
    offsets = weights.positions[: tree.page_size]
    weighed = (base[:, None] + offsets + 1) * (offsets < (seq_lens - base)[:, None])
    tails = xp.take(draft_kv, _tail_slots(weights, tree, kv_indices, seq_lens))
    return whole + xp.dot(tails, weighed[:, None])
