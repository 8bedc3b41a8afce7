"""One forward from the scheduler's side: resolve, isolate, launch, relay, copy, re-commit.

Source: sglang 0.5.23 managers/scheduler.py `run_batch` (behaviour).
"""

from __future__ import annotations

from specfuzz.core.config import EngineConfig
from specfuzz.gpu.arrays import Array
from specfuzz.gpu.device import Buffer
from specfuzz.gpu.races import Access
from specfuzz.reference.future_map import FutureMap
from specfuzz.reference.isolation import KeepAliveRing, forward_isolation
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.spec_info import GenerationBatchResult
from specfuzz.reference.streams import Streams
from specfuzz.reference.worker import Worker


def copy_to_host_kernel(access: Access, sources: list[Array], targets: list[Array]) -> None:
    """Device results into pinned host memory."""
    for source, target in zip(sources, targets, strict=True):
        target[...] = source
        access.read(source, None)
        access.write(target, None)


class ForwardRunner:
    """Runs a batch with or without overlap. Streams: schedule waits for nothing here but the WAR barrier."""

    def __init__(self, config: EngineConfig, streams: Streams, future_map: FutureMap, worker: Worker) -> None:
        """worker: the algorithm's own."""
        self.config = config
        self.streams, self.device = streams, streams.device
        self.future_map = future_map
        self.worker = worker
        self.ring = KeepAliveRing() if config.overlap else None
        self.schedule_stream, self.forward_stream, self.copy_stream = streams.schedule, streams.forward, streams.copy

    def run_batch(self, batch: ScheduleBatch) -> GenerationBatchResult:
        """Enqueue one forward; returns at once with handles."""
        overlap, speculative = self.config.overlap, self.config.speculative
        if overlap:
            self.future_map.resolve_seq_lens_cpu(batch)
        self.forward_stream.wait_stream(self.schedule_stream)
        # Outside of isolation: what is consumed here must stay consumed.
        self.future_map.resolve_forward_inputs(batch)
        with forward_isolation(batch, self.ring) as keep_alive:
            on_publish = self.future_map.publish if overlap and speculative else None
            result = self.worker.forward_batch_generation(batch, on_publish)
            if overlap and not speculative:
                self.future_map.publish_plain(batch)
            keep_alive += result.extra_keep_alive_refs
            if result.delay_sample_func is None:
                self.relay_forward_payload(batch, result)
                self.copy_result_to_cpu(result)
        self.recommit(batch, result)
        return result

    def launch_batch_sample(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """What `run_batch` has left for later: sample under the vocab masks as they are now, relay, copy."""
        assert result.delay_sample_func is not None
        result.delay_sample_func()
        result.delay_sample_func = None
        self.relay_forward_payload(batch, result)
        self.copy_result_to_cpu(result)

    def relay_forward_payload(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """Stash what the next round's forward will read; without overlap draft state crosses as tensors instead."""
        if not self.config.speculative:
            self.future_map.stash_tokens(batch, result.next_token_ids)
        elif self.config.overlap:
            assert result.next_draft_input is not None
            self.future_map.stash(batch, result.next_draft_input)

    def copy_result_to_cpu(self, result: GenerationBatchResult) -> None:
        """Copy what the host needs on the copy stream, a leaf: nobody on the device waits for it."""
        self.forward_stream_to_copy()
        sources = [result.next_token_ids]
        result.next_token_ids_cpu = self._pinned(result.next_token_ids, "next_token_ids_cpu")
        targets = [result.next_token_ids_cpu]
        if result.accept_lens is not None:
            sources.append(result.accept_lens)
            result.accept_lens_cpu = self._pinned(result.accept_lens, "accept_lens_cpu")
            targets.append(result.accept_lens_cpu)
        self.copy_stream.launch("copy_result", copy_to_host_kernel, sources, targets)
        result.copy_done = self.copy_stream.record("copy_done")

    def forward_stream_to_copy(self) -> None:
        """Results are copied only after the forward has written them."""
        self.copy_stream.wait_stream(self.forward_stream)

    def recommit(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """The short list of fields that cross rounds on purpose."""
        batch.input_ids = None
        if not self.config.speculative:
            return
        assert result.next_draft_input is not None
        batch.spec_info = result.next_draft_input
        if self.config.overlap:
            # The tensors live on in the relay; the batch keeps only where.
            batch.spec_info = type(result.next_draft_input)(future_indices=tuple(batch.req_pool_indices_cpu))
        elif result.new_seq_lens is not None and result.new_seq_lens is not batch.seq_lens:
            batch.seq_lens = result.new_seq_lens
            batch.seq_lens_cpu = self._read_now(result.new_seq_lens)

    def apply_war_barrier(self) -> None:
        """Schedule-side writes after this launch wait until the forward has read the shared rows.

        After the launch, so that result processing is fenced as well.
        """
        if self.worker.shared_reads_done is not None:
            self.schedule_stream.wait(self.worker.shared_reads_done)

    def _read_now(self, source: Buffer) -> list[int]:
        self.forward_stream.record("new_seq_lens").synchronize()
        values: list[int] = self.device.host_read(source).tolist()
        return values

    def _pinned(self, like: Buffer, name: str) -> Buffer:
        return self.streams.empty(tuple(like.peek().shape), name, self.copy_stream, pinned=True)
