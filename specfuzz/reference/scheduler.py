"""The scheduler: both event loops side by side, and the steps that they are made of.

A step runs host code to its end and only enqueues device work. The loops differ in one thing: with overlap a result is
processed after the next launch, not before it.
Source: sglang 0.5.23 managers/scheduler.py (behaviour).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from specfuzz.core.config import EngineConfig
from specfuzz.gpu.device import Device
from specfuzz.reference.algorithms import ALGORITHMS
from specfuzz.reference.allocation import Pools
from specfuzz.reference.forward import ForwardRunner
from specfuzz.reference.future_map import FutureMap
from specfuzz.reference.grammar import Grammar
from specfuzz.reference.kv_allocator import TokenToKVPoolAllocator
from specfuzz.reference.kv_pool import KVPool
from specfuzz.reference.model import weights_of
from specfuzz.reference.prefill_adder import PrefillAdder
from specfuzz.reference.radix_cache import RadixCache
from specfuzz.reference.req import Req
from specfuzz.reference.req_to_token_pool import ReqToTokenPool
from specfuzz.reference.result_processor import SchedulerBatchResultProcessor, Settled
from specfuzz.reference.retraction import Retraction, Retractor
from specfuzz.reference.sampling import Penalizer, SamplingBatchInfo
from specfuzz.reference.schedule_batch import ForwardMode, ScheduleBatch
from specfuzz.reference.spec_info import EagleDraftInput, GenerationBatchResult
from specfuzz.reference.streams import open_streams
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
        self.prefill_adder = PrefillAdder(self.pools)
        self.retractor = Retractor(self.pools)
        self.kv_pool = KVPool(slots, self.streams, with_draft=config.speculative)
        self.future_map = FutureMap(config, self.streams, self.req_to_token_pool.req_to_token)
        self.model_runner = ModelRunner(
            config, self.streams, self.kv_pool, self.req_to_token_pool, weights_of(config.row_width, device.arrays)
        )
        self.model_worker = ALGORITHMS.get(config.algorithm).make_worker(self.model_runner)
        self.forward = ForwardRunner(config, self.streams, self.future_map, self.model_worker)
        self.result_processor = SchedulerBatchResultProcessor(self.pools, device, speculative=config.speculative)
        self.req_type: type[Req] = Req
        self.waiting_queue: list[Req] = []
        self.running_batch = self._new_batch([], ForwardMode.DECODE)
        self.last_batch: ScheduleBatch | None = None
        self.chunked_req: Req | None = None  # its prompt is launched in part and goes on; one at a time
        self._pending_chunked_abort_req: Req | None = None
        self.answered: list[Req] = []  # aborted without a result of their own; whoever answers clients empties it
        self.result_queue: deque[tuple[ScheduleBatch, GenerationBatchResult]] = deque()
        # Over the queue, not over the scheduler: the engine must not hold itself.
        self.model_runner.vocab_masks.barrier = partial(
            self.result_processor.advance_pending_grammar, self.result_queue
        )

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
        """First come, first served: the chunk that goes on, an admissible request, else the next decode.

        By themselves the loops admit whole prompts and mix nothing; chunks and mixed steps are asked for by `admit` and
        `mix`.
        """
        self.merge_last_batch()
        carried = {id(req) for batch, _ in self.result_queue for req in batch.reqs if req is not self.chunked_req}
        for req in self.waiting_queue if self.chunked_req is None else [self.chunked_req]:
            if id(req) not in carried and self.refusal(req) is None:
                return self.admit(req)
        outcome = self.update_running_batch()
        for req in outcome.retraction.aborted:  # answered here: no result will ever come for it
            req.finished_reason = req.to_finish
        return outcome.batch

    # ------------------------------------------------------------------ admission
    def merge_last_batch(self) -> None:
        """The head of every scheduling step: an extend that was launched last joins the running batch, settled or not.

        A chunked request stays outside until its last chunk is launched; finished rows leave.
        """
        self.process_pending_chunked_abort()
        if self.chunked_req is not None:
            self.stash_chunked_request(self.chunked_req)
        last, self.last_batch = self.last_batch, None
        if last is not None and last.forward_mode.is_extend():
            last.filter_batch(() if last.chunked_req is None else (last.chunked_req,))
            if not last.is_empty():
                if self.running_batch.is_empty():
                    self.running_batch = last
                else:
                    self.running_batch.merge_batch(last)
        self.running_batch.filter_batch()

    def stash_chunked_request(self, req: Req) -> None:
        """Hand a launched chunk to the tree; the next chunk starts behind it."""
        if req.extend_end > req.prefix_len:
            self.tree_cache.checkpoint(req, req.extend_end)
            req.prefix_len = req.extend_end

    def process_pending_chunked_abort(self) -> None:
        """Drop the chunked request if an abort waits for it. Its chunk in flight runs on and changes nothing on it."""
        req, self._pending_chunked_abort_req = self._pending_chunked_abort_req, None
        if req is not None:
            req.finished_reason, req.to_finish = "abort", None
            self.pools.release_kv_cache(req, checkpoint=False)
            self.chunked_req = None
            self.answered.append(req)

    def refusal(self, req: Req, chunk: int = 0) -> str | None:
        """Why the request can't be prefilled now, or None. chunk: at most so many tokens, 0 = no bound."""
        if req is self.chunked_req:
            return self.prefill_adder.chunk_refusal(req, chunk, self._num_mixed_decode_tokens())
        return self.prefill_adder.refusal(req, chunk, self._num_mixed_decode_tokens())

    def _num_mixed_decode_tokens(self) -> int:
        return self.running_batch.batch_size() if self.config.mixed_chunk else 0

    def admit(self, req: Req, chunk: int = 0) -> ScheduleBatch:
        """An EXTEND batch of one request that `refusal` has let pass. chunk: as there."""
        if req is self.chunked_req:
            self.chunked_req = None
            end = self.prefill_adder.chunk_end(req, chunk, self._num_mixed_decode_tokens())
        else:
            end = self.prefill_adder.extend_end(req, chunk)
            self.waiting_queue.remove(req)
            assert req.last_node is not None
            self.tree_cache.lock(req, req.last_node)
        req.extend_end = end
        batch = self._new_batch([req], ForwardMode.EXTEND)
        if end < req.seqlen:
            self.chunked_req = batch.chunked_req = req
            batch.chunked_req_next_prompt_token = req.full_untruncated_fill_ids[end]
            req.inflight_middle_chunks += 1
        self.prepare_for_extend(batch, req)
        return batch

    def mix(self, batch: ScheduleBatch) -> list[Req]:
        """Let the running rows ride along with an admitted extend; returns those certain to finish, which don't.

        Rows for which the extend has left no memory sit this step out; a mixed step retracts nobody.
        """
        running = self.running_batch
        dropped = self._drop_reqs_finishing_inflight()
        if running.is_empty() or not self.pools.check_decode_mem(running.reqs):
            return dropped
        self.prepare_for_decode(running)
        batch.mix_with_running(running, self.req_to_token_pool)
        if self.config.speculative and not self.config.overlap:
            # Without overlap draft state crosses rounds as tensors, and nobody has written the relay.
            self.future_map.stash_bonus_tokens(batch, [req.output_ids[-1] for req in running.reqs])
        self.running_batch = self._new_batch([], ForwardMode.DECODE)
        return dropped

    def prepare_for_extend(self, batch: ScheduleBatch, req: Req) -> None:
        """Row, slots and staged input ids of the window [prefix_len, extend_end); a new life of the request begins."""
        out_cache_loc = self.pools.alloc_for_extend(req, req.extend_end)
        req.extend_batch_idx += 1
        req.is_retracted = False
        batch.prefill_input_ids_cpu = list(req.full_untruncated_fill_ids[req.prefix_len : req.extend_end])
        batch.out_cache_loc = batch.to_device(out_cache_loc, "out_cache_loc")
        batch.prefix_lens, batch.extend_lens = [req.prefix_len], [req.extend_end - req.prefix_len]
        batch.bind_rows()
        batch.bind_seq_lens([req.extend_end])

    # ------------------------------------------------------------------ decode
    def update_running_batch(self) -> Prepared:
        """Filter, check memory (evict, skip or retract), prepare the next decode of the running batch."""
        outcome, batch = Prepared(dropped=self._drop_reqs_finishing_inflight()), self.running_batch
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

    def _drop_reqs_finishing_inflight(self) -> list[Req]:
        """Drop the running rows that the queued result finishes by length for certain (it emits at least one token)."""
        if not self.config.overlap or not self.result_queue:
            return []
        queued, _ = self.result_queue[0]
        finishing = [
            req
            for req in self.running_batch.reqs
            if req in queued.reqs and len(req.output_ids) + 1 >= req.max_new_tokens
        ]
        self.running_batch.filter_batch(tuple(finishing))
        return finishing

    def prepare_for_decode(self, batch: ScheduleBatch) -> None:
        """Reserve (speculative) or claim (plain) the KV of the next decode; one tick of the decode clock."""
        batch.forward_mode = ForwardMode.DECODE
        batch.extend_lens = batch.prefix_lens = None
        batch.cumulate_penalty_output_tokens()
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
        self.launch_batch_sample_if_needed()

    def settle(self) -> Settled:
        """Process the oldest result."""
        settled = self.result_processor.process_batch_result(*self.result_queue.popleft())
        self.launch_batch_sample_if_needed()
        return settled

    def launch_batch_sample_if_needed(self) -> None:
        """Sample what waits for its vocab masks: nothing older is queued any more, so the FSMs have caught up."""
        if len(self.result_queue) == 1 and self.result_queue[0][1].delay_sample_func is not None:
            assert self.last_batch is not None
            self.forward.launch_batch_sample(self.last_batch, self.result_queue[0][1])

    # ------------------------------------------------------------------ entering and leaving early
    def add_request(
        self, rid: str, origin_input_ids: tuple[int, ...], max_new_tokens: int, grammar: Grammar | None = None
    ) -> Req:
        """Put a new request into the waiting queue."""
        req = self.req_type(rid, origin_input_ids, max_new_tokens, grammar)
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
        """Drop a waiting request at once (True), or mark another one for later.

        A running request ends at its next processed result, a chunked one at the head of the next scheduling step:
        taking it down while its chunk is being launched would not be safe.
        """
        if req in self.waiting_queue:
            self.waiting_queue.remove(req)
            return True
        if req is self.chunked_req:
            self._pending_chunked_abort_req = req
        if req is not self.chunked_req or self._is_carried(req):  # between two chunks nothing may carry it
            req.to_finish = "abort"
        return False

    def _is_carried(self, req: Req) -> bool:
        batches = [self.last_batch, *(batch for batch, _ in self.result_queue)]
        return any(batch is not None and req in batch.reqs for batch in batches)

    def _new_batch(self, reqs: list[Req], mode: ForwardMode) -> ScheduleBatch:
        return ScheduleBatch(
            streams=self.streams, spec_algorithm=self.config.algorithm, reqs=reqs,
            forward_mode=mode, sampling_info=SamplingBatchInfo(penalizer=Penalizer(len(reqs))),
            spec_info=EagleDraftInput() if self.config.speculative else None,
        )  # fmt: skip
