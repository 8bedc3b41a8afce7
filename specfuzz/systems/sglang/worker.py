"""The fake model worker: everything that a GPU would do, as integers, behind the seam that the real scheduler calls.

It keeps the contract of SGLang's workers: publish exactly once per speculative forward and before the draft extend,
rebind batch fields in the middle of a verify (isolation must undo it), never touch a request's host ledger. What it
reads and decides is recorded at its entry and exit; nothing it records is read back by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from specfuzz.core import language
from specfuzz.core.config import EngineConfig
from specfuzz.core.language import FLIP_BIT, STOP_TOKEN
from specfuzz.core.snapshot import WorkerEntry, WorkerExit
from specfuzz.systems.sglang.content import Ints, ToyModel, Window, unembed
from specfuzz.systems.sglang.grammar import sampling_mask, verify_mask
from specfuzz.systems.sglang.versions import Engine

Publish = Callable[[torch.Tensor], None]


class ToyWorker:
    """Target and draft worker in one. `accept` and `stops` are set by the driver before a launch.

    accept: accepted tokens incl. the bonus by engine rid (absent: 1). stops: armed absolute positions by engine rid.
    grammar_ends: likewise where constrained texts end at the latest: the draft has learnt it, the target is masked.
    """

    def __init__(self, engine: Engine, config: EngineConfig, model: ToyModel, req_to_token: torch.Tensor) -> None:
        """model: KV cells. req_to_token: the engine's row table, read by every forward as it is then."""
        self._engine = engine
        self._config = config
        self._rows = req_to_token.numpy()  # a view: CPU tensors share their memory
        self.model = model
        self.accept: Mapping[str, int] = {}
        self.stops: dict[str, frozenset[int]] = {}
        self.grammar_ends: dict[str, int] = {}
        self.last_shared_read_runner = SimpleNamespace(shared_read_done_event=None)
        self.observer: Callable[[Any], None] = lambda batch: None  # sees the batch before anything is rebound
        self.entry: WorkerEntry | None = None
        self.exit: WorkerExit | None = None

    # what the scheduler and the result processor also ask of a worker
    def on_verify_complete_cpu(self, num_correct_drafts: list[int], batch_size: int | None = None) -> None:
        """Feedback for adaptive drafting; the toy worker has none."""

    def note_request_finished(self, *, rid: str, natural_stop: bool) -> None:
        """Feedback for adaptive drafting; the toy worker has none."""

    def forward_batch_generation(
        self,
        batch: Any,
        on_publish: Publish | None = None,
        grammar_barrier: Callable[[], None] | None = None,
        pp_proxy_tensors: Any = None,
    ) -> Any:
        """One forward of the scheduler: extend, plain decode, or a whole draft-verify-accept-extend round."""
        self.observer(batch)
        if not self._config.speculative:
            return self._plain(batch)
        if batch.forward_mode.is_extend():
            return self._extend(batch, on_publish)
        return self._verify(batch, on_publish, grammar_barrier)

    def draft_stops(self, rid: str) -> frozenset[int]:
        """Absolute positions at which the draft of an engine rid expects the stop token: the first end of its text."""
        ends = self.stops.get(rid, frozenset()) | ({self.grammar_ends[rid]} if rid in self.grammar_ends else set())
        return frozenset({min(ends)}) if ends else frozenset()

    # ------------------------------------------------------------------ one token per row
    def _windows(self, batch: Any) -> list[Window]:
        """The rows' input windows: the extend lengths in EXTEND and MIXED, one token each in a plain DECODE.

        As in a real forward, positions come from prefix_lens and the span of attention from seq_lens.
        """
        seq_lens = batch.seq_lens.tolist()
        if batch.forward_mode.is_extend():
            lens, starts = list(batch.extend_lens), list(batch.prefix_lens)
        else:
            lens, starts = [1] * len(seq_lens), [length - 1 for length in seq_lens]
        tokens, loc = batch.input_ids.numpy(), batch.out_cache_loc.numpy()
        rows = batch.req_pool_indices.tolist()
        windows, offset = [], 0
        for index, req in enumerate(batch.reqs):
            length = lens[index]
            windows.append(
                Window(
                    start=starts[index],
                    tokens=tokens[offset : offset + length].astype(np.int64),
                    loc=loc[offset : offset + length].astype(np.int64),
                    cells=self._row(rows[index], max(seq_lens[index], length)),
                    stops=self.stops.get(req.rid, frozenset()),
                )
            )
            offset += length
        return windows

    def _row(self, row: int, length: int) -> Ints:
        return self._rows[row, :length].astype(np.int64)

    def _plain(self, batch: Any) -> Any:
        windows = self._windows(batch)
        self._enter(batch, windows)
        drawn = [int(following[-1]) for _, following in self.model.target_forward(windows)]
        reqs, info, lens = list(batch.reqs), batch.sampling_info, batch.seq_lens.tolist()
        result = self._result(None)

        def sample() -> Any:
            sampled = masked(drawn, sampling_mask(reqs, info))
            self._leave([1] * len(sampled), lens, [(token,) for token in sampled])
            result.next_token_ids = torch.tensor(sampled, dtype=torch.int64)
            return result

        if self._config.overlap and batch.has_grammar:
            result.delay_sample_func = sample  # its masks depend on the result before it
            return result
        return sample()

    def _extend(self, batch: Any, on_publish: Publish | None) -> Any:
        windows = self._windows(batch)
        self._enter(batch, windows)
        target = self.model.target_forward(windows)
        mask = sampling_mask(batch.reqs, batch.sampling_info)
        sampled = masked([int(following[-1]) for _, following in target], mask)
        frontier = batch.seq_lens
        if on_publish is not None:
            on_publish(frontier)
        batch.spec_info = SimpleNamespace(draft_extend=True)  # a real worker rebinds it here; isolation undoes that
        hidden = []
        # A middle chunk is followed by its prompt, whatever it has sampled.
        behind = self._engine.prefill_tail_tokens(batch, torch.tensor(sampled, dtype=torch.int64)).tolist()
        for window, (reductions, _), token in zip(windows, target, behind, strict=True):
            self.model.draft_extend(window.loc, window.start, np.append(window.tokens[1:], np.int64(token)))
            hidden.append(self.model.draft_reduction(window.cells, len(window.cells), token, int(reductions[-1])))
        self._leave([1] * len(sampled), frontier.tolist(), [(token,) for token in sampled])
        return self._result(
            torch.tensor(sampled, dtype=torch.int64),
            new_seq_lens=frontier,
            next_draft_input=self._draft_input(batch, sampled, hidden, frontier),
        )

    # ------------------------------------------------------------------ EAGLE chain
    def _verify(self, batch: Any, on_publish: Publish | None, barrier: Callable[[], None] | None) -> Any:
        width = self._config.draft_token_num
        draft = batch.spec_info
        base = batch.seq_lens
        bonus, first, hidden = (
            draft.bonus_tokens.tolist(),
            draft.topk_index[:, 0].tolist(),
            draft.hidden_states[:, 0].tolist(),
        )
        rows = batch.req_pool_indices.tolist()
        windows = []
        for index, (req, start) in enumerate(zip(batch.reqs, base.tolist(), strict=True)):
            stops = self.stops.get(req.rid, frozenset())
            cells = self._row(rows[index], start + width)
            window = Window(start=start, tokens=np.array([bonus[index]]), loc=cells[start:], cells=cells, stops=stops)
            windows.append(window)
        self._enter(batch, windows, bonus=bonus, topk_index=first, hidden=hidden)
        for index, (req, window) in enumerate(zip(batch.reqs, windows, strict=True)):
            wanted = max(1, self.accept.get(req.rid, 1))
            chain = self._propose(window, self.draft_stops(req.rid), first[index], hidden[index], wanted)
            window.tokens = np.array([bonus[index], *chain], dtype=np.int64)
        # A real worker rebinds all of these for the target forward; isolation must undo every one.
        batch.forward_mode = self._engine.ForwardMode.TARGET_VERIFY
        batch.input_ids = torch.from_numpy(np.concatenate([window.tokens for window in windows]))
        batch.out_cache_loc = torch.from_numpy(np.concatenate([window.loc for window in windows]))
        batch.spec_info = SimpleNamespace(draft_token_num=width)
        target = self.model.target_forward(windows)
        drafts = torch.from_numpy(np.stack([window.tokens for window in windows]))
        chain = [max(0, node - 1) for node in range(width)]
        masks = verify_mask(self._engine, batch, drafts, [chain] * len(windows), barrier)
        for (_, following), mask in zip(target, masks, strict=True):
            following[mask] = STOP_TOKEN
        runs = [_accepted(window.tokens, following) for window, (_, following) in zip(windows, target, strict=True)]
        accept_lens = torch.tensor([len(run) for run in runs], dtype=torch.int32)
        frontier = base + accept_lens
        if on_publish is not None:
            on_publish(frontier)
        batch.seq_lens = frontier
        after = []
        for window, (reductions, _), run in zip(windows, target, runs, strict=True):
            self.model.draft_extend(window.loc[: len(run)], window.start, np.array(run, dtype=np.int64))
            end = window.start + len(run)
            after.append(self.model.draft_reduction(window.cells, end, run[-1], int(reductions[len(run) - 1])))
        self._leave(accept_lens.tolist(), frontier.tolist(), [tuple(run) for run in runs])
        padded = [run + [0] * (width - len(run)) for run in runs]
        return self._result(
            torch.tensor(padded, dtype=torch.int64).flatten(),
            accept_lens=accept_lens,
            new_seq_lens=frontier,
            next_draft_input=self._draft_input(batch, [run[-1] for run in runs], after, frontier),
            speculative_num_draft_tokens=width,
        )

    def _propose(self, window: Window, stops: frozenset[int], first: int, hidden: int, wanted: int) -> list[int]:
        """The draft chain; proposal `wanted` is made wrong: a right draft state then accepts exactly that many."""
        chain, reduction = [], hidden
        for number in range(1, self._config.spec_steps + 1):
            position = window.start + number
            token = first if number == 1 else language.unembed(reduction)
            if position in stops:
                token = STOP_TOKEN
            if number == wanted:
                token ^= FLIP_BIT
            chain.append(token)
            if number < self._config.spec_steps:
                reduction = self.model.draft_step(window.cells, position, token, reduction)
        return chain

    def _draft_input(self, batch: Any, bonus: list[int], hidden: list[int], frontier: torch.Tensor) -> Any:
        state = np.array(hidden, dtype=np.int64)
        return self._engine.EagleDraftInput(
            bonus_tokens=torch.tensor(bonus, dtype=torch.int64),
            topk_p=torch.ones((len(bonus), self._config.topk)),
            topk_index=torch.from_numpy(self._seeds(batch, state, frontier)),
            hidden_states=torch.from_numpy(state).reshape(-1, 1),
        )

    def _seeds(self, batch: Any, state: Ints, frontier: torch.Tensor) -> Ints:
        """(bs, topk) first proposals of drafts in `state` for the rounds that start at `frontier`; of a chain one."""
        return unembed(state).reshape(-1, 1)

    # ------------------------------------------------------------------ records and results
    def _enter(
        self,
        batch: Any,
        windows: list[Window],
        *,
        bonus: list[int] | None = None,
        topk_index: list[int] | None = None,
        hidden: list[int] | None = None,
    ) -> None:
        self.entry = WorkerEntry(
            seq_lens=tuple(batch.seq_lens.tolist()),
            input_tokens=tuple(tuple(window.tokens.tolist()) for window in windows),
            window=tuple(tuple(window.loc.tolist()) for window in windows),
            prefix_lens=tuple(window.start for window in windows),
            bonus=tuple(bonus or ()),
            topk_index=tuple(topk_index or ()),
            hidden=tuple(hidden or ()),
        )
        self.exit = None

    def _leave(self, accept_lens: list[int], frontier: list[int], runs: list[tuple[int, ...]]) -> None:
        self.exit = WorkerExit(accept_lens=tuple(accept_lens), new_seq_lens=tuple(frontier), next_tokens=tuple(runs))

    def _result(self, next_token_ids: torch.Tensor | None, **fields: Any) -> Any:
        logits = SimpleNamespace(
            next_token_logprobs=None,
            next_token_logits=None,
            hidden_states=None,
            sampling_mask_output=None,
            auxiliary_device_output=None,
            customized_info=None,
        )
        return self._engine.GenerationBatchResult(logits_output=logits, next_token_ids=next_token_ids, **fields)


def masked(tokens: list[int], only_stop: list[bool]) -> list[int]:
    """The sampled tokens as the vocab mask lets them through; both by row."""
    return [STOP_TOKEN if constrained else token for token, constrained in zip(tokens, only_stop, strict=True)]


def _accepted(proposed: Ints, following: Ints) -> list[int]:
    """Greedy chain accept: the target's tokens as long as the next proposal equals them, plus the bonus."""
    count = 0
    while count + 1 < len(proposed) and proposed[count + 1] == following[count]:
        count += 1
    return [int(token) for token in following[: count + 1]]
