"""EAGLE with topk > 1 behind the worker seam: a tree of proposals with a branch per seed, verified in one window.

What a tree looks like stands in `core.draft_tree`; here it is drafted, verified and walked on the cells of `content`,
through the row table of the real engine. T = topk, S = levels, K = nodes that are verified, C = the frontier.
Order: copy of the prefix's partial page -> draft -> verify and walk -> move of the accepted path to the front of the
window -> PUBLISH -> draft-extend -> seeds.
Source: sglang 0.5.23 speculative/eagle_worker_v2.py, eagle_worker_common.py (behaviour).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from specfuzz.core.config import EngineConfig
from specfuzz.core.draft_tree import Node, branch_stride, nodes_of, right_branch, seeds, sibling_flip
from specfuzz.core.language import FLIP_BIT, STOP_TOKEN
from specfuzz.core.snapshot import WorkerEntry, WorkerExit
from specfuzz.systems.sglang.content import Ints, ToyModel, mix, unembed
from specfuzz.systems.sglang.grammar import verify_mask
from specfuzz.systems.sglang.rids import event_rid
from specfuzz.systems.sglang.versions import Engine
from specfuzz.systems.sglang.worker import Publish, ToyWorker


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Shape:
    """The tree of one right branch as tables. nodes: 1 to K - 1. depths, parents: (K,), the root's parent is itself.

    ancestors: (K, K) 1 where the first node attends to the second one: itself and all above it, the root included.
    apart: (T,) XOR from the best seed to that of each branch.
    """

    nodes: tuple[Node, ...]
    depths: Ints
    parents: tuple[int, ...]
    ancestors: Ints
    apart: Ints


@lru_cache(maxsize=256)
def shape_of(topk: int, steps: int, num_nodes: int, branch: int) -> Shape:
    """The tree whose right branch is `branch`."""
    nodes = nodes_of(topk, steps, num_nodes, branch)
    parents = (0, *(node.parent for node in nodes))
    ancestors = np.eye(num_nodes, dtype=np.int64)
    for at, parent in enumerate(parents[1:], 1):  # a parent's number is smaller than its child's
        ancestors[at] |= ancestors[parent]
    return Shape(
        nodes=nodes,
        depths=np.array([0, *(node.level for node in nodes)], dtype=np.int64),
        parents=parents,
        ancestors=ancestors,
        apart=np.array([sibling_flip((t - branch) % topk) for t in range(topk)], dtype=np.int64),
    )


@dataclass(slots=True, eq=False)
class Round:
    """One row's share of one round. start: C. branch: the right one. row: all cells of its row as read at the launch.

    window: (K,) slots of positions [C, C + K), out of that row. tokens: (K,) by node, once drafted. stops: armed
    absolute positions; draft_stops: where the draft expects them. start and bonus, seeds, hidden are what the relay
    gave.
    """

    start: int
    branch: int
    shape: Shape
    row: Ints
    window: Ints
    stops: frozenset[int]
    draft_stops: frozenset[int]
    bonus: int
    seeds: Ints
    hidden: int
    tokens: Ints


class TreeModel:
    """Drafts and verifies trees on the cells of a toy model."""

    def __init__(self, model: ToyModel, config: EngineConfig) -> None:
        """model: cells of both sides. config: shape of the tree, and the page size."""
        self._model = model
        self._config = config
        self._steps: Ints = np.arange(config.spec_steps, dtype=np.int64)

    # ------------------------------------------------------------------ draft
    def duplicate_prefix_tails(self, rounds: list[Round]) -> None:
        """Give every further branch its copy of the prefix's partial page: branches read whole pages."""
        draft = self._draft()
        for one in rounds:
            source = self._tail(one, 0)
            for branch in range(1, self._config.topk if len(source) else 0):
                draft[self._tail(one, branch)] = draft[source]

    def draft(self, one: Round, wanted: int) -> None:
        """Propose a tree; proposal `wanted` of the right path is made wrong, so exactly that many tokens are accepted.

        Every level but the last writes its KV to the branches' own slots, and reads the branch's prefix back: whole
        pages of the prefix, the partial one as the branch has copied it, its own levels.
        """
        topk, steps, draft = self._config.topk, self._config.spec_steps, self._draft()
        prefix = np.array([self._read_prefix(one, branch) for branch in range(topk)], dtype=np.int64)
        below, reduction = prefix, np.full(topk, one.hidden, dtype=np.int64)
        slots = np.array([self._lanes(one, branch) for branch in range(topk)], dtype=np.int64)
        tokens, apart = one.seeds.copy(), one.shape.apart
        levels: list[Ints] = []
        for level in range(1, steps + 1):
            position = one.start + level
            if position in one.draft_stops:
                tokens = STOP_TOKEN ^ apart
            if level == wanted:
                tokens[one.branch] ^= FLIP_BIT
            levels.append(tokens)
            if level == steps:
                break
            v1 = mix(tokens, np.array([position], dtype=np.int64))
            draft[slots[:, level - 1]] = v1
            reduction = reduction + (position + 1) * mix(v1, below)
            weights = one.start + 1 + self._steps[:level]
            below = prefix + (draft[slots[:, :level]] * weights).sum(1)
            tokens, apart = unembed(reduction), np.zeros(topk, dtype=np.int64)
        proposals = [
            int(levels[node.level - 1][node.branch]) ^ sibling_flip(node.alternative) for node in one.shape.nodes
        ]
        one.tokens = np.array([one.bonus, *proposals], dtype=np.int64)

    def _read_prefix(self, one: Round, branch: int) -> np.int64:
        """Digest D(C + 1) as a branch reads it; draft cell i stands for the token at i + 1."""
        whole = one.start - one.start % self._config.page_size
        cells = self._draft()[np.concatenate([self._at(one, 0, whole), self._tail(one, branch)])]
        return np.int64((cells * np.arange(1, len(cells) + 1, dtype=np.int64)).sum())

    def _head(self, one: Round, branch: int) -> int:
        """Position of the first page of a branch."""
        page_size = self._config.page_size
        stride = branch_stride(one.start, page_size, self._config.spec_steps)
        return one.start - one.start % page_size + branch * stride

    def _tail(self, one: Round, branch: int) -> Ints:
        """Slots of the prefix's partial page as a branch has it; branch 0 has the prefix's own."""
        return self._at(one, self._head(one, branch), one.start % self._config.page_size)

    def _lanes(self, one: Round, branch: int) -> Ints:
        """Slots of a branch's levels."""
        start = self._head(one, branch) + one.start % self._config.page_size
        return self._at(one, start, self._config.spec_steps)

    @staticmethod
    def _at(one: Round, start: int, count: int) -> Ints:
        """Slots of positions [start, start + count); beyond the row those of its last cell, so as wrong content."""
        return one.row[np.minimum(np.arange(start, start + count), len(one.row) - 1)]

    def _draft(self) -> Ints:
        assert self._model.draft_v1 is not None
        self._model.writes += 1
        return self._model.draft_v1

    # ------------------------------------------------------------------ target
    def verify(self, rounds: list[Round]) -> list[tuple[Ints, Ints]]:
        """Target forward over the K nodes; by row (reductions O, following tokens), each (K,) by node.

        A node attends to the prefix and to its ancestors. Layer by layer over all rows, as in `ToyModel`.
        """
        v1, v2 = self._model.target_v1, self._model.target_v2
        self._model.writes += 1
        first = []
        for one in rounds:
            first.append(mix(one.tokens, one.start + one.shape.depths))
            v1[one.window] = first[-1]
        for one, cells in zip(rounds, first, strict=True):
            own = v1[one.window] * (one.start + one.shape.depths)
            below = (v1[one.row[: one.start]] * np.arange(one.start, dtype=np.int64)).sum()
            v2[one.window] = mix(cells, below + one.shape.ancestors @ own - own)
        results = []
        for one in rounds:
            positions = one.start + one.shape.depths
            below = (v2[one.row[: one.start]] * np.arange(1, one.start + 1, dtype=np.int64)).sum()
            reductions: Ints = below + one.shape.ancestors @ (v2[one.window] * (positions + 1))
            following = unembed(reductions)
            for stop in one.stops:
                following[positions + 1 == stop] = STOP_TOKEN
            results.append((reductions, following))
        return results

    def move(self, targets: Ints, sources: Ints) -> None:
        """Copy target KV from `sources` to `targets`; all is read before anything is written."""
        self._model.writes += 1
        for layer in (self._model.target_v1, self._model.target_v2):
            layer[targets] = layer[sources]


def walk(one: Round, following: Ints) -> list[int]:
    """Greedy walk from the root: on to the child that its parent predicts, as long as there is one. The nodes of it."""
    path = [0]
    for node in range(1, len(one.tokens)):  # a child's number is greater than its parent's
        if one.shape.parents[node] == path[-1] and one.tokens[node] == following[path[-1]]:
            path.append(node)
    return path


class TreeWorker(ToyWorker):
    """Target and draft worker of trees in one."""

    def __init__(self, engine: Engine, config: EngineConfig, model: ToyModel, req_to_token: torch.Tensor) -> None:
        """As the chain's worker."""
        super().__init__(engine, config, model, req_to_token)
        self.trees = TreeModel(model, config)

    def _verify(self, batch: Any, on_publish: Publish | None, barrier: Callable[[], None] | None) -> Any:
        config, base = self._config, batch.seq_lens
        width = config.draft_token_num
        rounds = self._rounds(batch)
        self.entry = WorkerEntry(
            seq_lens=tuple(base.tolist()),
            input_tokens=tuple((one.bonus,) for one in rounds),
            window=tuple(tuple(one.window.tolist()) for one in rounds),
            prefix_lens=tuple(base.tolist()),
            bonus=tuple(one.bonus for one in rounds),
            topk_index=tuple(int(one.seeds[0]) for one in rounds),
            hidden=tuple(one.hidden for one in rounds),
            topk_seeds=tuple(tuple(one.seeds.tolist()) for one in rounds),
        )
        self.exit = None
        self.trees.duplicate_prefix_tails(rounds)
        for req, one in zip(batch.reqs, rounds, strict=True):
            self.trees.draft(one, max(1, self.accept.get(req.rid, 1)))
        # A real worker rebinds all of these for the target forward; isolation must undo every one.
        batch.forward_mode = self._engine.ForwardMode.TARGET_VERIFY
        batch.input_ids = torch.from_numpy(np.concatenate([one.tokens for one in rounds]))
        batch.out_cache_loc = torch.from_numpy(np.concatenate([one.window for one in rounds]))
        batch.spec_info = SimpleNamespace(draft_token_num=width)
        target = self.trees.verify(rounds)
        masks = verify_mask(
            self._engine, batch, torch.from_numpy(np.stack([one.tokens for one in rounds])),
            [list(one.shape.parents) for one in rounds], barrier,
        )  # fmt: skip
        for (_, following), mask in zip(target, masks, strict=True):
            following[mask] = STOP_TOKEN
        paths = [walk(one, following) for one, (_, following) in zip(rounds, target, strict=True)]
        runs = [[int(following[node]) for node in path] for path, (_, following) in zip(paths, target, strict=True)]
        accept_lens = torch.tensor([len(path) for path in paths], dtype=torch.int32)
        frontier = base + accept_lens
        moves = [(one.window[: len(path)], one.window[path]) for one, path in zip(rounds, paths, strict=True)]
        self.trees.move(np.concatenate([to for to, _ in moves]), np.concatenate([source for _, source in moves]))
        # After the move: a row that is published may be handed on.
        if on_publish is not None:
            on_publish(frontier)
        batch.seq_lens = frontier
        after = []
        for one, (reductions, _), path, run in zip(rounds, target, paths, runs, strict=True):
            self.model.draft_extend(one.window[: len(run)], one.start, np.array(run, dtype=np.int64))
            after.append(self.model.draft_reduction(one.row, one.start + len(run), run[-1], int(reductions[path[-1]])))
        bonus = [run[-1] for run in runs]
        lanes = config.spec_steps + 1
        self.exit = WorkerExit(
            accept_lens=tuple(accept_lens.tolist()),
            new_seq_lens=tuple(frontier.tolist()),
            next_tokens=tuple(map(tuple, runs)),
            accept_index=tuple((*path, *[-1] * (lanes - len(path))) for path in paths),
            moved=tuple(
                (*zip(to.tolist(), source.tolist(), strict=True), *[(0, 0)] * (lanes - len(to))) for to, source in moves
            ),
            bonus=tuple(bonus),
        )
        padded = [run + [0] * (width - len(run)) for run in runs]
        return self._result(
            torch.tensor(padded, dtype=torch.int64).flatten(),
            accept_lens=accept_lens,
            new_seq_lens=frontier,
            next_draft_input=self._draft_input(batch, bonus, after, frontier),
            speculative_num_draft_tokens=width,
        )

    def _rounds(self, batch: Any) -> list[Round]:
        config, draft = self._config, batch.spec_info
        relayed = zip(
            batch.reqs, batch.req_pool_indices.tolist(), batch.seq_lens.tolist(), draft.bonus_tokens.tolist(),
            draft.topk_index.tolist(), draft.hidden_states[:, 0].tolist(), strict=True,
        )  # fmt: skip
        rounds = []
        for req, index, length, bonus, first, hidden in relayed:
            row = self._row(index, self._rows.shape[1])
            start = min(max(length, 0), len(row) - config.draft_token_num)  # a wrong length must show as wrong content
            branch = right_branch(event_rid(req.rid), length, config.topk)
            rounds.append(
                Round(
                    start=start, branch=branch, row=row, window=row[start : start + config.draft_token_num],
                    shape=shape_of(config.topk, config.spec_steps, config.draft_token_num, branch),
                    stops=self.stops.get(req.rid, frozenset()), draft_stops=self.draft_stops(req.rid), bonus=bonus,
                    seeds=np.array(first, dtype=np.int64), hidden=hidden, tokens=np.array([bonus], dtype=np.int64),
                )
            )  # fmt: skip
        return rounds

    def _seeds(self, batch: Any, state: Ints, frontier: torch.Tensor) -> Ints:
        topk = self._config.topk
        rows = zip(batch.reqs, state.tolist(), frontier.tolist(), strict=True)
        return np.array([seeds(hidden, right_branch(event_rid(req.rid), end, topk), topk) for req, hidden, end in rows])
