"""EAGLE with topk 1: a chain of S proposals from relayed draft state, verified by the target in one window of S + 1.

Order on the forward stream: plan -> draft -> verify and accept -> PUBLISH -> draft-extend (-> stash, by the scheduler).
Source: sglang 0.5.23 speculative/eagle_worker_v2.py (behaviour).
"""

from __future__ import annotations

import torch

from specfuzz.core.capability import Capability
from specfuzz.gpu.device import Buffer, Event
from specfuzz.gpu.races import Access
from specfuzz.reference.algorithms import ALGORITHMS, Algorithm
from specfuzz.reference.model import Weights, draft_extend_kernel, draft_kernel, pad_windows, verify_kernel
from specfuzz.reference.schedule_batch import ForwardMode, ScheduleBatch
from specfuzz.reference.spec_info import EagleDraftInput, EagleVerifyInput, GenerationBatchResult
from specfuzz.reference.worker import ModelRunner, OnPublish

Tensor = torch.Tensor


def draft_after_verify_kernel(
    access: Access,
    draft_kv: Tensor,
    kv_indices: Tensor,
    weights: Weights,
    seq_lens: Tensor,
    next_token_ids: Tensor,
    accept_lens: Tensor,
    hidden_states: Tensor,
    topk_index: Tensor,
    hidden_out: Tensor,
) -> None:
    """Draft-extend over the whole verify window (padded width), reading the row of the last accepted node."""
    draft_extend_kernel(
        access, draft_kv, kv_indices, weights, seq_lens, next_token_ids, accept_lens - 1, hidden_states, None,
        topk_index, hidden_out,
    )  # fmt: skip


def draft_prefill_kernel(
    access: Access,
    draft_kv: Tensor,
    kv_indices: Tensor,
    weights: Weights,
    seq_lens: Tensor,
    input_ids: Tensor,
    extend_lens: list[int],
    next_token_ids: Tensor,
    hidden_states: Tensor,
    topk_index: Tensor,
    hidden_out: Tensor,
) -> None:
    """Draft-extend over the extend window: each position is followed by the next input id, the last by the sampled one."""
    lens = torch.tensor(extend_lens, device=seq_lens.device)
    following = pad_windows(input_ids, extend_lens).roll(-1, 1)
    last = lens - 1
    following.scatter_(1, last.unsqueeze(1), next_token_ids.unsqueeze(1))
    draft_extend_kernel(
        access, draft_kv, kv_indices, weights, seq_lens - lens, following, last, hidden_states, extend_lens,
        topk_index, hidden_out,
    )  # fmt: skip


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
        self._forward.launch(
            "draft_extend", draft_prefill_kernel, runner.kv_pool.draft, kv_indices, runner.weights, batch.seq_lens,
            batch.input_ids, lens, next_token_ids, target_hidden, topk_index, hidden,
        )  # fmt: skip
        return GenerationBatchResult(
            next_token_ids,
            new_seq_lens=batch.seq_lens,
            next_draft_input=EagleDraftInput(next_token_ids, topk_index, hidden),
            extra_keep_alive_refs=[kv_indices, target_hidden],
        )

    def _forward_decode(self, batch: ScheduleBatch, on_publish: OnPublish | None) -> GenerationBatchResult:
        runner, draft_input, seq_lens = self._runner, batch.spec_info, batch.seq_lens
        assert isinstance(draft_input, EagleDraftInput) and seq_lens is not None
        width = self.num_steps + 1
        kv_indices = runner.plan(batch)
        stops = runner.stop_positions(batch)

        verify_tokens = batch.new_tensor("verify_tokens", on=self._forward, lanes=width)
        flips = [runner.draft_flip_at.get(req.rid, 0) for req in batch.reqs]
        self._forward.launch(
            "draft", draft_kernel, runner.kv_pool.draft, kv_indices, runner.weights, seq_lens, draft_input.bonus_tokens,
            draft_input.topk_index, draft_input.hidden_states, stops, flips, verify_tokens,
        )  # fmt: skip

        # Bindings of this forward only; isolation restores what the scheduler had.
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        batch.input_ids = verify_tokens
        batch.spec_info = EagleVerifyInput(verify_tokens)
        next_token_ids = batch.new_tensor("next_token_ids", on=self._forward, lanes=width)
        accept_lens, new_seq_lens, bonus_tokens, target_hidden = (
            batch.new_tensor(name, on=self._forward)
            for name in ("accept_lens", "new_seq_lens", "bonus_tokens", "target_hidden")
        )
        self._forward.launch(
            "verify", verify_kernel, runner.kv_pool.target, kv_indices, runner.weights, seq_lens, verify_tokens, stops,
            next_token_ids, accept_lens, new_seq_lens, bonus_tokens, target_hidden,
        )  # fmt: skip
        # Before draft-extend: the next round's schedule needs the frontier, not the draft state.
        if on_publish is not None:
            on_publish(batch, new_seq_lens)

        topk_index, hidden = self._draft_state(batch)
        self._forward.launch(
            "draft_extend", draft_after_verify_kernel, runner.kv_pool.draft, kv_indices, runner.weights, seq_lens,
            next_token_ids, accept_lens, target_hidden, topk_index, hidden,
        )  # fmt: skip
        return GenerationBatchResult(
            next_token_ids,
            accept_lens=accept_lens,
            new_seq_lens=new_seq_lens,
            next_draft_input=EagleDraftInput(bonus_tokens, topk_index, hidden),
            stride=width,
            extra_keep_alive_refs=[kv_indices, verify_tokens, target_hidden],
        )

    def _draft_state(self, batch: ScheduleBatch) -> tuple[Buffer, Buffer]:
        return batch.new_tensor("topk_index", on=self._forward), batch.new_tensor("hidden_states", on=self._forward)


ALGORITHMS.register(
    "EAGLE",
    Algorithm(
        name="EAGLE",
        summary="chain of S proposals per round from relayed draft state (topk 1)",
        capabilities=Capability.SPECULATIVE | Capability.DRAFT_KV | Capability.DRAFT_EXTRAS,
        publishes="after accept, before draft-extend: C + accept_len",
        relays="bonus token, first proposal (topk_index), hidden state; draft KV stays at the target's slots",
        make_worker=EagleWorkerV2,
    ),
)
