"""The scheduler: both event loops side by side, and the steps that they are made of.

A step runs host code to its end and only enqueues device work. The loops differ in one thing: with overlap a result is
processed after the next launch, not before it.
Source: sglang 0.5.23 managers/scheduler.py (behaviour).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from specfuzz.core.config import EngineConfig
from specfuzz.gpu.device import Device
from specfuzz.reference.algorithms import ALGORITHMS
from specfuzz.reference.allocation import Pools
from specfuzz.reference.forward import ForwardRunner
from specfuzz.reference.future_map import FutureMap
from specfuzz.reference.kv_allocator import TokenToKVPoolAllocator
from specfuzz.reference.kv_pool import KVPool
from specfuzz.reference.model import Weights
from specfuzz.reference.radix_cache import RadixCache
from specfuzz.reference.req import Penalizer, Req, SamplingBatchInfo
from specfuzz.reference.req_to_token_pool import ReqToTokenPool
from specfuzz.reference.result_processor import SchedulerBatchResultProcessor, Settled
from specfuzz.reference.retraction import Retraction, Retractor
from specfuzz.reference.schedule_batch import ForwardMode, ScheduleBatch
from specfuzz.reference.spec_info import EagleDraftInput, GenerationBatchResult
from specfuzz.reference.streams import open_streams
from specfuzz.reference.tree_node import TreeNode
from specfuzz.reference.worker import ModelRunner


@dataclass(slots=True)
class Prepared:
    """Outcome of preparing a decode: the batch to launch (None: nothing to do) and what had to give way."""

    batch: ScheduleBatch | None = None
    dropped: list[Req] = field(default_factory=list)
    retraction: Retraction = field(default_factory=Retraction)
    skipped: bool = False


class Scheduler:
    """waiting_queue -> running_batch -> result_queue. last_batch: launched last and not looked at since."""

    def __init__(self, config: EngineConfig, device: Device) -> None:
        """config: validated. device: streams and memory."""
        self.config = config
        self.device = device
        self.streams = open_streams(device, overlap=config.overlap)
        slots = (config.num_pages + 1) * config.page_size
        self.req_to_token_pool = ReqToTokenPool(config.max_reqs, config.row_width, device)
        self.allocator = TokenToKVPoolAllocator(config.num_pages, config.page_size)
        self.tree_cache = RadixCache(
            self.req_to_token_pool, self.allocator, page_size=config.page_size, is_eagle=config.speculative,
            disable=not config.radix,
        )  # fmt: skip
        self.pools = Pools(config, self.req_to_token_pool, self.allocator, self.tree_cache)
        self.retractor = Retractor(self.pools)
        self.kv_pool = KVPool(slots, self.streams, with_draft=config.speculative)
        self.future_map = FutureMap(config.max_reqs + 1, self.streams)
        self.model_runner = ModelRunner(
            config, self.streams, self.kv_pool, self.req_to_token_pool, Weights(config.row_width, device.arrays)
        )
        self.model_worker = ALGORITHMS.get(config.algorithm).make_worker(self.model_runner)
        self.forward = ForwardRunner(config, self.streams, self.future_map, self.model_worker)
        self.result_processor = SchedulerBatchResultProcessor(self.pools, device, speculative=config.speculative)
        self.req_type: type[Req] = Req
        self.waiting_queue: list[Req] = []
        self.running_batch = self._new_batch([], ForwardMode.DECODE)
        self.last_batch: ScheduleBatch | None = None
        self.result_queue: deque[tuple[ScheduleBatch, GenerationBatchResult]] = deque()

    # ------------------------------------------------------------------ the two loops
    def event_loop_normal(self, ingest: Callable[[], bool]) -> None:
        """Launch, then process that very result. ingest: takes in requests, returns False when the loop shall end."""
        while ingest():
            batch = self.get_next_batch_to_run()
            if batch is not None:
                self.launch(batch)
                self.settle()

    def event_loop_overlap(self, ingest: Callable[[], bool]) -> None:
        """Launch, then process the result before it. ingest: as for `event_loop_normal`."""
        while ingest():
            batch = self.get_next_batch_to_run()
            if batch is not None:
                self.launch(batch)
            if len(self.result_queue) > (batch is not None):
                self.settle()

    def get_next_batch_to_run(self) -> ScheduleBatch | None:
        """First come, first served: an admissible request, else the next decode."""
        self.merge_last_batch()
        carried = {id(req) for batch, _ in self.result_queue for req in batch.reqs}
        for req in self.waiting_queue:
            if id(req) not in carried and self.refusal(req) is None:
                return self.admit(req)
        outcome = self.update_running_batch()
        for req in outcome.retraction.aborted:  # answered here: no result will ever come for it
            req.finished_reason = req.to_finish
        return outcome.batch

    # ------------------------------------------------------------------ admission
    def merge_last_batch(self) -> None:
        """An extend that was launched last joins the running batch, settled or not; finished rows leave."""
        last, self.last_batch = self.last_batch, None
        if last is not None and last.forward_mode.is_extend():
            last.filter_batch()
            if not last.is_empty():
                if self.running_batch.is_empty():
                    self.running_batch = last
                else:
                    self.running_batch.merge_batch(last)
        self.running_batch.filter_batch()

    def refusal(self, req: Req) -> str | None:
        """Why the request can't be admitted now, or None; looks up its prefix.

        One page beyond the extend must be free or evictable, strictly: the admission estimate of upstream without its
        share for future output.
        """
        if self.req_to_token_pool.available_size() == 0:
            return "no free row"
        tree = self.tree_cache
        node = self.match_kv_cache(req)
        tree.lock(req, node)  # what it would match can't be evicted for it
        room = self.allocator.available_size() + tree.evictable_size
        tree.unlock(req)
        return None if room > req.seqlen - req.prefix_len + self.config.page_size else "no room in the KV pool"

    def match_kv_cache(self, req: Req) -> TreeNode:
        """Look up the request's prefix (at least one token is always extended) and count it as the tree's part."""
        req.prefix_len, req.last_node = self.tree_cache.match_prefix(req.fill_ids[:-1])
        req.kv.cache_protected_len = req.prefix_len
        return req.last_node

    def admit(self, req: Req) -> ScheduleBatch:
        """An EXTEND batch of one request that `refusal` has let pass."""
        self.waiting_queue.remove(req)
        assert req.last_node is not None
        self.tree_cache.lock(req, req.last_node)
        req.extend_end = req.seqlen
        batch = self._new_batch([req], ForwardMode.EXTEND)
        self.prepare_for_extend(batch, req)
        return batch

    def prepare_for_extend(self, batch: ScheduleBatch, req: Req) -> None:
        """Row, slots and staged input ids of the window [prefix_len, extend_end); a new life of the request begins."""
        out_cache_loc = self.pools.alloc_for_extend(req, req.extend_end)
        req.extend_batch_idx += 1
        req.is_retracted = False
        batch.prefill_input_ids_cpu = list(req.fill_ids[req.prefix_len : req.extend_end])
        batch.out_cache_loc = batch.to_device(out_cache_loc, "out_cache_loc")
        batch.prefix_lens, batch.extend_lens = [req.prefix_len], [req.extend_end - req.prefix_len]
        batch.bind_rows()
        batch.bind_seq_lens([req.extend_end])

    # ------------------------------------------------------------------ decode
    def update_running_batch(self) -> Prepared:
        """Filter, check memory (evict, skip or retract), prepare the next decode of the running batch."""
        outcome, batch = Prepared(), self.running_batch
        if self.config.overlap and self.result_queue:
            outcome.dropped = self._reqs_finishing_inflight()
            batch.filter_batch(tuple(outcome.dropped))
        if batch.is_empty():
            return outcome
        if not self.pools.check_decode_mem(batch.reqs):
            if outcome.dropped:
                # The queued result is about to free their KV; decode the rest then instead of retracting it.
                outcome.skipped = True
                return outcome
            outcome.retraction = self.retractor.retract_decode(batch.reqs)
            batch.keep_rows([batch.reqs.index(req) for req in outcome.retraction.kept])
            self.waiting_queue += outcome.retraction.retracted
            if batch.is_empty():
                return outcome
        self.prepare_for_decode(batch)
        outcome.batch = batch
        return outcome

    def _reqs_finishing_inflight(self) -> list[Req]:
        """Running rows that the queued result finishes by length for certain (a verify emits at least one token)."""
        queued, _ = self.result_queue[0]
        return [
            req
            for req in self.running_batch.reqs
            if req in queued.reqs and len(req.output_ids) + 1 >= req.max_new_tokens
        ]

    def prepare_for_decode(self, batch: ScheduleBatch) -> None:
        """Reserve (speculative) or claim (plain) the KV of the next decode; one tick of the decode clock."""
        batch.forward_mode = ForwardMode.DECODE
        batch.extend_lens = batch.prefix_lens = None
        batch.sampling_info = SamplingBatchInfo(penalizer=Penalizer())
        for req in batch.reqs:
            req.decode_batch_idx += 1
        if self.config.speculative:
            self.pools.alloc_for_spec_decode(batch.reqs)
            return
        assert batch.seq_lens_cpu is not None
        batch.out_cache_loc = batch.to_device(self.pools.alloc_for_decode(batch.reqs), "out_cache_loc")
        batch.bind_seq_lens([length + 1 for length in batch.seq_lens_cpu])

    # ------------------------------------------------------------------ launch and settle
    def launch(self, batch: ScheduleBatch) -> None:
        """run_batch: enqueue one forward, fence later schedule writes behind its shared reads, queue the result."""
        # The lookahead is exactly one forward.
        assert len(self.result_queue) <= (1 if self.config.overlap else 0), "a result was not processed"
        result = self.forward.run_batch(batch)
        self.forward.apply_war_barrier()
        self.result_queue.append((batch.copy(), result))
        self.last_batch = batch

    def settle(self) -> Settled:
        """Process the oldest result."""
        return self.result_processor.process_batch_result(*self.result_queue.popleft())

    # ------------------------------------------------------------------ entering and leaving early
    def add_request(self, rid: str, origin_input_ids: tuple[int, ...], max_new_tokens: int) -> Req:
        """Put a new request into the waiting queue."""
        req = self.req_type(rid, origin_input_ids, max_new_tokens)
        self.waiting_queue.append(req)
        return req

    def retract(self, req: Req) -> bool:
        """Release a running row, reset it, requeue it; False if it isn't in the running batch."""
        if req not in self.running_batch.reqs:
            return False
        self.retractor.release_req(req, self.running_batch.batch_size() - 1)
        self.running_batch.filter_batch()
        self.waiting_queue.append(req)
        return True

    def abort(self, req: Req) -> bool:
        """Drop a waiting request at once (True), or mark a running one; it then ends at its next processed result."""
        if req in self.waiting_queue:
            self.waiting_queue.remove(req)
            return True
        req.to_finish = "abort"
        return False

    def _new_batch(self, reqs: list[Req], mode: ForwardMode) -> ScheduleBatch:
        return ScheduleBatch(
            streams=self.streams, spec_algorithm=self.config.algorithm, reqs=reqs,
            forward_mode=mode, sampling_info=SamplingBatchInfo(penalizer=Penalizer()),
            spec_info=EagleDraftInput() if self.config.speculative else None,
        )  # fmt: skip
