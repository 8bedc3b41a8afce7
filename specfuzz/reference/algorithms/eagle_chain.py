"""EAGLE with topk 1: a chain of S proposals from relayed draft state, verified by the target in one window of S + 1.

With topk > 1 the worker of eagle_tree takes its place.
Order on the forward stream: plan -> draft -> verify and accept -> PUBLISH -> draft-extend (-> stash, by the scheduler).
Source: sglang 0.5.23 speculative/eagle_worker_v2.py (behaviour).
"""

from __future__ import annotations

from specfuzz.gpu.device import Buffer, Event
from specfuzz.reference.model import verify_kernel
from specfuzz.reference.model_draft import draft_after_verify_kernel, draft_kernel, draft_prefill_kernel
from specfuzz.reference.schedule_batch import ForwardMode, ScheduleBatch
from specfuzz.reference.spec_info import EagleDraftInput, EagleVerifyInput, GenerationBatchResult
from specfuzz.reference.worker import ModelRunner, OnPublish


class EagleWorkerV2:
    """Draft and target side of one speculative round."""

    def __init__(self, runner: ModelRunner) -> None:
        """runner: the model's memory and streams."""
        self._runner = runner
        self._forward = runner.streams.forward
        self.num_steps = runner.config.spec_steps

    @property
    def shared_reads_done(self) -> Event | None:
        """Fence after the last read of shared rows."""
        return self._runner.shared_reads_done

    def forward_batch_generation(self, batch: ScheduleBatch, on_publish: OnPublish | None) -> GenerationBatchResult:
        """Prefill (also MIXED) or one speculative round."""
        if batch.forward_mode.is_extend():
            return self._forward_extend(batch, on_publish)
        return self._forward_decode(batch, on_publish)

    def _forward_extend(self, batch: ScheduleBatch, on_publish: OnPublish | None) -> GenerationBatchResult:
        runner, lens = self._runner, batch.extend_lens
        assert lens is not None and batch.seq_lens is not None
        kv_indices = runner.plan(batch)
        next_token_ids, target_hidden = runner.target_extend(batch, kv_indices, lens)
        # The sampled token is pending, not KV-ready: the frontier is the prompt's end, without + 1.
        if on_publish is not None:
            on_publish(batch, batch.seq_lens)
        topk_index, hidden = self._draft_state(batch)
        behind = [-1 if req is not batch.chunked_req else batch.chunked_req_next_prompt_token for req in batch.reqs]
        self._forward.launch(
            "draft_extend", draft_prefill_kernel, runner.weights, runner.kv_pool.draft, kv_indices, batch.seq_lens,
            batch.input_ids, lens, behind, next_token_ids, target_hidden, topk_index, hidden,
        )  # fmt: skip
        return GenerationBatchResult(
            next_token_ids,
            new_seq_lens=batch.seq_lens,
            next_draft_input=EagleDraftInput(next_token_ids, self.seeds(batch, topk_index, batch.seq_lens), hidden),
            extra_keep_alive_refs=[kv_indices, target_hidden],
        )

    def _forward_decode(self, batch: ScheduleBatch, on_publish: OnPublish | None) -> GenerationBatchResult:
        runner, draft_input, seq_lens = self._runner, batch.spec_info, batch.seq_lens
        assert isinstance(draft_input, EagleDraftInput) and seq_lens is not None
        width = self.num_steps + 1
        kv_indices = runner.plan(batch)

        verify_tokens = batch.new_tensor("verify_tokens", on=self._forward, lanes=width)
        digest = batch.new_tensor("draft_digest", on=self._forward)
        flips = [runner.draft_flip_at.get(req.rid, 0) for req in batch.reqs]
        self._forward.launch(
            "draft", draft_kernel, runner.weights, runner.kv_pool.draft, kv_indices, seq_lens, draft_input.bonus_tokens,
            draft_input.topk_index, draft_input.hidden_states, runner.draft_stop_positions(batch), flips,
            verify_tokens, digest,
        )  # fmt: skip
        only_stop = runner.vocab_masks.of_nodes(batch, verify_tokens)

        # Bindings of this forward only; isolation restores what the scheduler had.
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        batch.input_ids = verify_tokens
        batch.spec_info = EagleVerifyInput(verify_tokens)
        next_token_ids = batch.new_tensor("next_token_ids", on=self._forward, lanes=width)
        accept_lens = batch.new_tensor("accept_lens", on=self._forward)
        new_seq_lens = batch.new_tensor("new_seq_lens", on=self._forward)
        bonus_tokens = batch.new_tensor("bonus_tokens", on=self._forward)
        target_hidden = batch.new_tensor("target_hidden", on=self._forward)
        self._forward.launch(
            "verify", verify_kernel, runner.weights, runner.kv_pool.target_v1, runner.kv_pool.target_v2, kv_indices,
            seq_lens, verify_tokens, runner.stop_positions(batch), next_token_ids, accept_lens, new_seq_lens,
            bonus_tokens, target_hidden, only_stop,
        )  # fmt: skip
        # Before draft-extend: the next round's schedule needs the frontier, not the draft state.
        if on_publish is not None:
            on_publish(batch, new_seq_lens)

        topk_index, hidden = self._draft_state(batch)
        self._forward.launch(
            "draft_extend", draft_after_verify_kernel, runner.weights, runner.kv_pool.draft, kv_indices, seq_lens,
            digest, next_token_ids, accept_lens, target_hidden, topk_index, hidden,
        )  # fmt: skip
        return GenerationBatchResult(
            next_token_ids,
            accept_lens=accept_lens,
            new_seq_lens=new_seq_lens,
            next_draft_input=EagleDraftInput(bonus_tokens, topk_index, hidden),
            stride=width,
            extra_keep_alive_refs=[kv_indices, verify_tokens, digest, target_hidden],
        )

    def seeds(self, batch: ScheduleBatch, best: Buffer, frontier: Buffer) -> Buffer:
        """topk_index of the round that starts at `frontier` (bs,): of a chain the draft's best proposal (bs,)."""
        return best

    def _draft_state(self, batch: ScheduleBatch) -> tuple[Buffer, Buffer]:
        return batch.new_tensor("topk_index", on=self._forward), batch.new_tensor("hidden_states", on=self._forward)
