"""NONE: plain autoregressive decoding, the anchor that every speculative text must equal."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.gpu.device import Event
from specfuzz.reference.algorithms import ALGORITHMS, Algorithm
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.spec_info import GenerationBatchResult
from specfuzz.reference.worker import ModelRunner, OnPublish


class TpModelWorker:
    """One target forward per launch; the scheduler publishes for it, since nothing follows the sampling.

    Under overlap a constrained batch is sampled later: its vocab masks depend on the result before it.
    """

    def __init__(self, runner: ModelRunner) -> None:
        """runner: the model's memory and streams."""
        self._runner = runner

    @property
    def shared_reads_done(self) -> Event | None:
        """Fence after the last read of shared rows."""
        return self._runner.shared_reads_done

    def forward_batch_generation(self, batch: ScheduleBatch, on_publish: OnPublish | None) -> GenerationBatchResult:
        """Extend every row by its window, or by one token when decoding."""
        lens = batch.extend_lens if batch.forward_mode.is_extend() else [1] * batch.batch_size()
        assert lens is not None
        runner = self._runner
        kv_indices = runner.plan(batch)
        later = batch.has_grammar and runner.config.overlap
        next_token_ids, hidden_states = runner.target_extend(batch, kv_indices, lens, sample=not later)
        return GenerationBatchResult(
            next_token_ids,
            extra_keep_alive_refs=[kv_indices, hidden_states],
            delay_sample_func=runner.sampler(batch, hidden_states, next_token_ids) if later else None,
        )


ALGORITHMS.register(
    "NONE",
    Algorithm(
        name="NONE",
        summary="plain decoding, one token per round",
        capabilities=Capability.MIXED_CHUNK | Capability.GRAMMAR,
        publishes="after the forward, by the scheduler: seq_lens + 1",
        relays="last sampled token",
        make_worker=TpModelWorker,
    ),
)
