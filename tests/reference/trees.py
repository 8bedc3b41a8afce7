"""A tree round on arrays, kernel by kernel as the worker launches them, beside a slow walk through it on integers."""

from __future__ import annotations

from dataclasses import dataclass

from specfuzz.core.draft_tree import Node, branch_key, nodes_of, right_branch, seeds, sibling_flip
from specfuzz.core.language import FLIP_BIT, Continuation, mix, unembed, wrap
from specfuzz.gpu.arrays import Array, Arrays
from specfuzz.reference.kv_pool import move_kv_kernel
from specfuzz.reference.model_draft import draft_after_verify_kernel
from specfuzz.reference.model_tree import Tree, copy_tails_kernel, draft_tree_kernel, seeds_kernel
from specfuzz.reference.model_tree_verify import (
    accept_tree_kernel,
    accepted_locs_kernel,
    compact_accepted_kernel,
    fill_bonus_tokens_kernel,
    select_last_kernel,
    verify_tree_kernel,
    verify_window_kernel,
)
from tests.reference.memory import ACCESS, Rows

#: Row cells: a prefix, and the pages of eight branches behind it.
WIDTH = 160


@dataclass(frozen=True)
class Shape:
    """topk, levels, nodes, tokens per page."""

    topk: int
    steps: int
    nodes: int
    page_size: int = 1


class Round:
    """One round of every row from right state at these frontiers; row i accepts accept[i] tokens."""

    def __init__(self, shape: Shape, frontier: list[int], accept: list[int], xp: Arrays, *, seed: int = 0) -> None:
        """Nothing is computed yet; KV of target and draft is right on [0, C) of every row."""
        self.shape, self.frontier, self.accept, self.xp = shape, frontier, accept, xp
        self.rows = rows = Rows(len(frontier), xp, seed, WIDTH)
        self.rids = [f"r{row}" for row in range(len(frontier))]
        self.tree = Tree(shape.topk, shape.steps, shape.nodes, shape.page_size, xp)
        self.stops = [-1] * len(frontier)
        self.lens, self.kv_indices = xp.array(frontier), rows.kv_indices
        self.branches = [right_branch(rid, c, shape.topk) for rid, c in zip(self.rids, frontier, strict=True)]
        rows.fill_draft(frontier)
        rows.fill_target(frontier)

    @property
    def keys(self) -> list[int]:
        return [branch_key(rid) for rid in self.rids]

    def nodes(self, row: int) -> tuple[Node, ...]:
        return nodes_of(self.shape.topk, self.shape.steps, self.shape.nodes, self.branches[row])

    # ------------------------------------------------------------------------------------------------ on arrays
    def copy_tails(self) -> None:
        """The copy of the partial page that the draft of a paged pool needs."""
        copy_tails_kernel(ACCESS, self.rows.weights, self.tree, self.rows.draft_kv, self.kv_indices, self.lens)

    def draft(self) -> list[list[int]]:
        """Verify tokens by row and node."""
        rows, shape, count = self.rows, self.shape, len(self.frontier)
        places = list(zip(rows.texts, self.frontier, self.branches, strict=True))
        hidden = [text.hidden(c) for text, c, _ in places]
        topk_index = [seeds(state, branch, shape.topk) for state, (_, _, branch) in zip(hidden, places, strict=True)]
        self.tokens, self.positions, self.parents = (rows.zeros(count, shape.nodes) for _ in range(3))
        self.mask, self.digest = rows.zeros(count, shape.nodes, shape.nodes), rows.zeros(count)
        draft_tree_kernel(
            ACCESS, rows.weights, self.tree, rows.draft_kv, self.kv_indices, self.lens,
            self.xp.array([text.token(c) for text, c, _ in places]), self.xp.array(topk_index), self.xp.array(hidden),
            self.keys, self.stops, [at if at <= shape.steps else 0 for at in self.accept], self.tokens, self.positions,
            self.parents, self.mask, self.digest,
        )  # fmt: skip
        found: list[list[int]] = self.tokens.tolist()
        return found

    def verify(self) -> None:
        """Target forward and walk."""
        rows, shape, count = self.rows, self.shape, len(self.frontier)
        self.window = rows.zeros(count, shape.nodes)
        verify_window_kernel(ACCESS, rows.weights, self.kv_indices, self.lens, self.window)
        self.predict, self.hidden = rows.zeros(count, shape.nodes), rows.zeros(count, shape.nodes)
        verify_tree_kernel(
            ACCESS, rows.weights, rows.target_v1, rows.target_v2, self.kv_indices, self.lens, self.window, self.tokens,
            self.positions, self.mask, self.stops, self.predict, self.hidden,
        )  # fmt: skip
        self.accept_index = rows.zeros(count, shape.steps + 1)
        self.accept_lens, self.new_seq_lens = rows.zeros(count), rows.zeros(count)
        accept_tree_kernel(
            ACCESS, rows.weights, self.lens, self.tokens, self.positions, self.parents, self.mask, self.predict,
            self.accept_index, self.accept_lens, self.new_seq_lens,
        )  # fmt: skip

    def bonus(self, stride: int) -> list[int]:
        """Bonus tokens, looked up with that many accepted tokens per row."""
        out = self.rows.zeros(len(self.frontier))
        fill_bonus_tokens_kernel(
            ACCESS, self.rows.weights, self.predict, self.accept_index, self.accept_lens, stride, out
        )
        found: list[int] = out.tolist()
        return found

    def move(self) -> tuple[list[list[int]], list[list[int]]]:
        """Bring the accepted path to the front; (targets, sources) of its KV."""
        rows, shape, count = self.rows, self.shape, len(self.frontier)
        targets, sources = rows.zeros(count, shape.steps + 1), rows.zeros(count, shape.steps + 1)
        accepted_locs_kernel(ACCESS, rows.weights, self.window, self.accept_index, self.accept_lens, targets, sources)
        move_kv_kernel(ACCESS, self.xp, [rows.target_v1, rows.target_v2], targets, sources)
        scattered = [self.predict, self.hidden]
        self.predict, self.hidden = rows.zeros(count, shape.nodes), rows.zeros(count, shape.nodes)
        compact_accepted_kernel(ACCESS, rows.weights, self.accept_index, scattered, [self.predict, self.hidden])
        return targets.tolist(), sources.tolist()

    def extend(self) -> tuple[Array, Array]:
        """Draft-extend; (seeds (bs, T), hidden states (bs,)) for the next round."""
        rows, count = self.rows, len(self.frontier)
        last, best, hidden = rows.zeros(count), rows.zeros(count), rows.zeros(count)
        select_last_kernel(ACCESS, rows.weights, self.hidden, self.accept_lens, last)
        draft_after_verify_kernel(
            ACCESS, rows.weights, rows.draft_kv, self.kv_indices, self.lens, self.digest, self.predict,
            self.accept_lens, last, best, hidden,
        )  # fmt: skip
        topk_index = rows.zeros(count, self.shape.topk)
        seeds_kernel(ACCESS, rows.weights, self.tree, best, self.keys, self.new_seq_lens, topk_index)
        return topk_index, hidden

    # ----------------------------------------------------------------------------------------------- on integers
    def slow_draft(self, row: int) -> list[int]:
        """The tokens that the draft must propose: every branch goes on by itself, from the text and its own tokens."""
        text, c, branch = self.rows.texts[row], self.frontier[row], self.branches[row]
        best: dict[tuple[int, int], int] = {}
        for t, token in enumerate(seeds(text.hidden(c), branch, self.shape.topk)):
            digest = sum((i + 1) * text.draft_cell(i) for i in range(c))
            reduction = text.hidden(c)
            for level in range(1, self.shape.steps + 1):
                if level == self.accept[row] and t == branch:
                    token ^= FLIP_BIT
                best[level, t] = token
                v1 = mix(token, c + level)
                reduction = wrap(reduction + (c + level + 1) * mix(v1, wrap(digest)))
                digest += (c + level) * v1
                token = unembed(reduction)
        return [text.token(c), *(best[n.level, n.branch] ^ sibling_flip(n.alternative) for n in self.nodes(row))]

    def slow_verify(self, row: int, tokens: list[int]) -> tuple[list[int], list[int], list[tuple[int, int]]]:
        """(predicted token, O, target cells) by node: plain decoding of the prefix and the path down to the node."""
        text, c = self.rows.texts[row], self.frontier[row]
        parents = [-1, *(node.parent for node in self.nodes(row))]
        predicted, hidden, cells = [], [], []
        for node in range(self.shape.nodes):
            path = [node]
            while parents[path[0]] >= 0:
                path.insert(0, parents[path[0]])
            line = Continuation((*text.tokens[:c], *(tokens[n] for n in path)))
            at = c + len(path) - 1
            hidden.append(line.hidden(at))
            predicted.append(unembed(line.hidden(at)))
            cells.append(line.target_cell(at))
        return predicted, hidden, cells


def slow_walk(parents: list[int], tokens: list[int], predicted: list[int]) -> list[int]:
    """Nodes from the root down, each the child that its parent predicts."""
    path = [0]
    while True:
        here = path[-1]
        children = [n for n, parent in enumerate(parents) if n and parent == here and tokens[n] == predicted[here]]
        if not children:
            return path
        path.append(children[0])
