"""What every worker has in common: the model's memory, the forward stream, the attention plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from specfuzz.core.config import EngineConfig
from specfuzz.gpu.device import Buffer, Event
from specfuzz.reference.kv_pool import KVPool
from specfuzz.reference.model import Weights, extend_kernel, plan_kernel
from specfuzz.reference.req_to_token_pool import ReqToTokenPool
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.spec_info import GenerationBatchResult
from specfuzz.reference.streams import Streams

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

    def target_extend(self, batch: ScheduleBatch, kv_indices: Buffer, extend_lens: list[int]) -> tuple[Buffer, Buffer]:
        """Target forward over the extend window; returns (next_token_ids, hidden_states), each (bs,) int64."""
        next_token_ids = batch.new_tensor("next_token_ids", on=self.streams.forward)
        hidden_states = batch.new_tensor("hidden_states", on=self.streams.forward)
        self.streams.forward.launch(
            "target_extend", extend_kernel, self.weights, self.kv_pool.target_v1, self.kv_pool.target_v2, kv_indices,
            batch.seq_lens, batch.input_ids, batch.out_cache_loc, extend_lens, self.stop_positions(batch),
            next_token_ids, hidden_states,
        )  # fmt: skip
        return next_token_ids, hidden_states
