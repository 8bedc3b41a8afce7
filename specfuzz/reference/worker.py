"""What every worker has in common: the model's memory, the forward stream, the attention plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from specfuzz.core.config import EngineConfig
from specfuzz.gpu.device import Buffer, Event
from specfuzz.reference.kv_pool import KVPool
from specfuzz.reference.model import Weights, extend_kernel, plan_kernel, sample_kernel
from specfuzz.reference.req_to_token_pool import ReqToTokenPool
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.spec_info import GenerationBatchResult
from specfuzz.reference.streams import Streams
from specfuzz.reference.vocab_mask import VocabMasks

OnPublish = Callable[[ScheduleBatch, Buffer], None]


class Worker(Protocol):
    """One algorithm's forward: enqueues all of its device work on the forward stream and returns at once.

    It may rebind any field of the batch (isolation undoes that); it never touches a Req's lengths. Under overlap a
    speculative worker calls on_publish(batch, new_seq_lens) exactly once per forward, after the accept.
    """

    @property
    def shared_reads_done(self) -> Event | None:
        """Fence after the last read of shared rows by the newest forward; None before the first."""

    def forward_batch_generation(self, batch: ScheduleBatch, on_publish: OnPublish | None) -> GenerationBatchResult:
        """Launch one forward."""


@dataclass(slots=True)
class ModelRunner:
    """Memory and streams that a worker computes with.

    draft_flip_at: by rid the 1-based proposal that the coming verify shall get wrong, absent = none.
    shared_reads_done: recorded once the forward no longer reads shared rows (req_to_token).
    """

    config: EngineConfig
    streams: Streams
    kv_pool: KVPool
    req_to_token_pool: ReqToTokenPool
    weights: Weights
    draft_flip_at: dict[str, int] = field(default_factory=dict)
    shared_reads_done: Event | None = None
    vocab_masks: VocabMasks = field(init=False)

    def __post_init__(self) -> None:
        self.vocab_masks = VocabMasks(self.streams)

    def plan(self, batch: ScheduleBatch) -> Buffer:
        """Copy the batch's rows out of the shared table; returns kv_indices (bs, width) int64."""
        forward = self.streams.forward
        kv_indices = batch.new_tensor("kv_indices", on=self.streams.forward, lanes=self.weights.width)
        forward.launch(
            "plan", plan_kernel, self.weights, self.req_to_token_pool.req_to_token, kv_indices,
            batch.req_pool_indices_cpu, batch.req_pool_indices,
        )  # fmt: skip
        self.shared_reads_done = forward.record("shared_reads_done")
        return kv_indices

    def stop_positions(self, batch: ScheduleBatch) -> list[int]:
        """Armed stop position by row, -1 none."""
        return [req.stop_position for req in batch.reqs]

    def draft_stop_positions(self, batch: ScheduleBatch) -> list[int]:
        """Position by row at which the draft expects the stop token, -1 none."""
        return [req.draft_stop_position for req in batch.reqs]

    def target_extend(
        self, batch: ScheduleBatch, kv_indices: Buffer, extend_lens: list[int], *, sample: bool = True
    ) -> tuple[Buffer, Buffer]:
        """Target forward over the extend window; returns (next_token_ids, hidden_states), each (bs,) int64.

        sample: else next_token_ids stays unwritten, for `sampler`.
        """
        if batch.has_grammar and batch.decoding_reqs and sample:
            self.vocab_masks.barrier()  # a tail's last token may still be queued; a prompt's state is known
        next_token_ids = batch.new_tensor("next_token_ids", on=self.streams.forward)
        hidden_states = batch.new_tensor("hidden_states", on=self.streams.forward)
        self.streams.forward.launch(
            "target_extend", extend_kernel, self.weights, self.kv_pool.target_v1, self.kv_pool.target_v2, kv_indices,
            batch.seq_lens, batch.input_ids, batch.out_cache_loc, extend_lens, self.stop_positions(batch),
            next_token_ids if sample else None, hidden_states, self.vocab_masks.of_rows(batch) if sample else None,
        )  # fmt: skip
        return next_token_ids, hidden_states

    def sampler(self, batch: ScheduleBatch, hidden_states: Buffer, next_token_ids: Buffer) -> Callable[[], None]:
        """Samples a forward that is launched now from its hidden_states, under the vocab masks of the time of the call.

        hidden_states: (bs,) int64. next_token_ids: likewise, written.
        """
        seq_lens, stops = batch.seq_lens, self.stop_positions(batch)

        def sample() -> None:
            self.streams.forward.launch(
                "sample", sample_kernel, self.weights, seq_lens, hidden_states, stops, self.vocab_masks.of_rows(batch),
                next_token_ids,
            )  # fmt: skip

        return sample
