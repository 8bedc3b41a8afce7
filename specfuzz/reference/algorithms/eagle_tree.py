"""EAGLE with topk > 1: a tree of proposals with a branch per seed, verified in one window of K nodes.

Order on the forward stream: plan -> copy of the prefix's partial page -> draft -> verify and walk -> bonus -> move of
the accepted path to the front of the window -> PUBLISH -> draft-extend -> seeds (-> stash, by the scheduler). What
follows the move takes the window for that of a chain.
Source: sglang 0.5.23 speculative/eagle_worker_v2.py, eagle_worker_common.py (behaviour).
"""

from __future__ import annotations

from dataclasses import dataclass

from specfuzz.core.draft_tree import branch_key
from specfuzz.gpu.device import Buffer
from specfuzz.reference.algorithms.eagle_chain import EagleWorkerV2
from specfuzz.reference.model_draft import draft_after_verify_kernel
from specfuzz.reference.model_tree import copy_tails_kernel, draft_tree_kernel, seeds_kernel, tree_of
from specfuzz.reference.model_tree_verify import (
    accept_tree_kernel,
    accepted_locs_kernel,
    compact_accepted_kernel,
    fill_bonus_tokens_kernel,
    select_last_kernel,
    verify_tree_kernel,
    verify_window_kernel,
)
from specfuzz.reference.schedule_batch import ForwardMode, ScheduleBatch
from specfuzz.reference.spec_info import EagleDraftInput, EagleVerifyInput, GenerationBatchResult
from specfuzz.reference.worker import ModelRunner, OnPublish


@dataclass(slots=True)
class Verified:
    """What a verify leaves on the device. predict, hidden_states: (bs, K), by node until the path is compacted.

    accept_index: (bs, S + 1) nodes of the accepted path, then -1. accept_lens, new_seq_lens: (bs,).
    """

    predict: Buffer
    hidden_states: Buffer
    accept_index: Buffer
    accept_lens: Buffer
    new_seq_lens: Buffer


class EagleTreeWorkerV2(EagleWorkerV2):
    """Draft and target side of one speculative round over a tree."""

    def __init__(self, runner: ModelRunner) -> None:
        """runner: the model's memory and streams."""
        super().__init__(runner)
        config = runner.config
        self.topk, self.num_draft_tokens, self.page_size = config.topk, config.draft_token_num, config.page_size
        self.tree = tree_of(
            config.topk, config.spec_steps, config.draft_token_num, config.page_size, runner.weights.arrays
        )

    def _forward_decode(self, batch: ScheduleBatch, on_publish: OnPublish | None) -> GenerationBatchResult:
        draft_input = batch.spec_info
        assert isinstance(draft_input, EagleDraftInput)
        kv_indices = self._runner.plan(batch)
        if self.page_size > 1:
            self.duplicate_prefix_tail(batch, kv_indices)
        verify_input, digest = self.draft(batch, draft_input, kv_indices)

        # Bindings of this forward only; isolation restores what the scheduler had.
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        batch.input_ids = verify_input.draft_tokens
        batch.spec_info = verify_input
        batch.out_cache_loc = self._new(batch, "out_cache_loc", self.num_draft_tokens)
        self._forward.launch(
            "verify_window", verify_window_kernel, self._runner.weights, kv_indices, batch.seq_lens, batch.out_cache_loc
        )
        verified = self.verify(batch, verify_input, kv_indices)
        bonus_tokens = self.fill_bonus_tokens(batch, verified, self.num_steps + 1)
        tgt_cache_loc, accept_out_cache_loc = self.accepted_locs(batch, verified)
        self.move_accepted_path(tgt_cache_loc, accept_out_cache_loc)
        verified = self.compact_accepted_path(batch, verified)
        # Before draft-extend: the next round's schedule needs the frontier, not the draft state.
        if on_publish is not None:
            on_publish(batch, verified.new_seq_lens)
        topk_index, hidden = self.draft_extend(batch, verified, kv_indices, digest)
        return GenerationBatchResult(
            verified.predict,
            accept_lens=verified.accept_lens,
            new_seq_lens=verified.new_seq_lens,
            next_draft_input=EagleDraftInput(bonus_tokens, topk_index, hidden),
            stride=self.num_draft_tokens,
            extra_keep_alive_refs=[kv_indices, verify_input, digest, verified, batch.out_cache_loc],
            accept_index=verified.accept_index,
            tgt_cache_loc=tgt_cache_loc,
            accept_out_cache_loc=accept_out_cache_loc,
        )

    # ------------------------------------------------------------------ draft
    def duplicate_prefix_tail(self, batch: ScheduleBatch, kv_indices: Buffer) -> None:
        """Give every further branch its copy of the prefix's partial page: branches read whole pages."""
        runner = self._runner
        self._forward.launch(
            "duplicate_prefix_tail", copy_tails_kernel, runner.weights, self.tree, runner.kv_pool.draft, kv_indices,
            batch.seq_lens,
        )  # fmt: skip

    def draft(
        self, batch: ScheduleBatch, draft_input: EagleDraftInput, kv_indices: Buffer
    ) -> tuple[EagleVerifyInput, Buffer]:
        """Draft a tree per row; returns it with the draft's digest of the prefix, (bs,)."""
        runner, nodes = self._runner, self.num_draft_tokens
        verify_input = EagleVerifyInput(
            self._new(batch, "verify_tokens", nodes), self._new(batch, "positions", nodes),
            self._new(batch, "parents", nodes),
            runner.streams.empty((batch.batch_size(), nodes, nodes), "tree_mask", self._forward),
        )  # fmt: skip
        digest = self._new(batch, "draft_digest")
        flips = [runner.draft_flip_at.get(req.rid, 0) for req in batch.reqs]
        self._forward.launch(
            "draft", draft_tree_kernel, runner.weights, self.tree, runner.kv_pool.draft, kv_indices, batch.seq_lens,
            draft_input.bonus_tokens, draft_input.topk_index, draft_input.hidden_states, self._keys(batch),
            runner.draft_stop_positions(batch), flips, verify_input.draft_tokens, verify_input.positions,
            verify_input.parents, verify_input.tree_mask, digest,
        )  # fmt: skip
        return verify_input, digest

    # ------------------------------------------------------------------ target
    def verify(self, batch: ScheduleBatch, verify_input: EagleVerifyInput, kv_indices: Buffer) -> Verified:
        """Target forward over the K nodes and the walk from the root."""
        runner, pool, nodes = self._runner, self._runner.kv_pool, self.num_draft_tokens
        verified = Verified(
            self._new(batch, "predict", nodes), self._new(batch, "target_hidden", nodes),
            self._new(batch, "accept_index", self.num_steps + 1), self._new(batch, "accept_lens"),
            self._new(batch, "new_seq_lens"),
        )  # fmt: skip
        tokens, positions = verify_input.draft_tokens, verify_input.positions
        only_stop = runner.vocab_masks.of_nodes(batch, tokens, verify_input.parents)
        self._forward.launch(
            "verify", verify_tree_kernel, runner.weights, pool.target_v1, pool.target_v2, kv_indices, batch.seq_lens,
            batch.out_cache_loc, tokens, positions, verify_input.tree_mask, runner.stop_positions(batch),
            verified.predict, verified.hidden_states, only_stop,
        )  # fmt: skip
        self._forward.launch(
            "accept", accept_tree_kernel, runner.weights, batch.seq_lens, tokens, positions, verify_input.parents,
            verify_input.tree_mask, verified.predict, verified.accept_index, verified.accept_lens,
            verified.new_seq_lens,
        )  # fmt: skip
        return verified

    def fill_bonus_tokens(self, batch: ScheduleBatch, verified: Verified, stride: int) -> Buffer:
        """The pending token of every row, (bs,). stride: accepted tokens per row, the width of accept_index."""
        bonus_tokens = self._new(batch, "bonus_tokens")
        self._forward.launch(
            "fill_bonus_tokens", fill_bonus_tokens_kernel, self._runner.weights, verified.predict,
            verified.accept_index, verified.accept_lens, stride, bonus_tokens,
        )  # fmt: skip
        return bonus_tokens

    def accepted_locs(self, batch: ScheduleBatch, verified: Verified) -> tuple[Buffer, Buffer]:
        """Slots (bs, S + 1) to which and from which the accepted path moves, both out of the verify's own window.

        Never out of req_to_token: once the plan has read it, the scheduler may hand a finished request's row on.
        """
        locs = [self._new(batch, name, self.num_steps + 1) for name in ("tgt_cache_loc", "accept_out_cache_loc")]
        self._forward.launch(
            "accepted_locs", accepted_locs_kernel, self._runner.weights, batch.out_cache_loc, verified.accept_index,
            verified.accept_lens, *locs,
        )  # fmt: skip
        return locs[0], locs[1]

    def move_accepted_path(self, tgt_cache_loc: Buffer, accept_out_cache_loc: Buffer) -> None:
        """Bring the KV of the accepted path to the front of the window, [C, C + accept_len)."""
        self._runner.kv_pool.move_kv_cache(tgt_cache_loc, accept_out_cache_loc)

    def compact_accepted_path(self, batch: ScheduleBatch, verified: Verified) -> Verified:
        """The same result with tokens and hidden states of the accepted path at the front of each row."""
        predict, hidden = (
            self._new(batch, name, self.num_draft_tokens) for name in ("next_token_ids", "target_hidden")
        )
        self._forward.launch(
            "compact_accepted", compact_accepted_kernel, self._runner.weights, verified.accept_index,
            [verified.predict, verified.hidden_states], [predict, hidden],
        )  # fmt: skip
        return Verified(predict, hidden, verified.accept_index, verified.accept_lens, verified.new_seq_lens)

    # ------------------------------------------------------------------ draft-extend
    def draft_extend(
        self, batch: ScheduleBatch, verified: Verified, kv_indices: Buffer, digest: Buffer
    ) -> tuple[Buffer, Buffer]:
        """Draft-extend over the whole window (padded width); returns (topk_index (bs, T), hidden_states (bs,))."""
        runner, last_hidden = self._runner, self._new(batch, "last_hidden")
        self._forward.launch(
            "select_last", select_last_kernel, runner.weights, verified.hidden_states, verified.accept_lens, last_hidden
        )
        best, hidden = self._draft_state(batch)
        self._forward.launch(
            "draft_extend", draft_after_verify_kernel, runner.weights, runner.kv_pool.draft, kv_indices, batch.seq_lens,
            digest, verified.predict, verified.accept_lens, last_hidden, best, hidden,
        )  # fmt: skip
        return self.seeds(batch, best, verified.new_seq_lens), hidden

    def seeds(self, batch: ScheduleBatch, best: Buffer, frontier: Buffer) -> Buffer:
        """One first proposal per branch, (bs, T), for the round that starts at `frontier`."""
        topk_index = self._new(batch, "topk_index", self.topk)
        self._forward.launch(
            "seeds", seeds_kernel, self._runner.weights, self.tree, best, self._keys(batch), frontier, topk_index
        )
        return topk_index

    # ------------------------------------------------------------------ helpers
    def _keys(self, batch: ScheduleBatch) -> list[int]:
        return [branch_key(req.rid) for req in batch.reqs]

    def _new(self, batch: ScheduleBatch, name: str, lanes: int | None = None) -> Buffer:
        return batch.new_tensor(name, on=self._forward, lanes=lanes)
