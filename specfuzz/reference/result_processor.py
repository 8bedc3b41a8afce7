"""Lets the host catch up: commits accepted runs, appends output, decides finishes, releases. Never touches the device.

A row that is finished or retracted when its result arrives must not change at all: its forward was launched before the
host could know.
Source: sglang 0.5.23 managers/scheduler_components/batch_result_processor.py (behaviour).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from specfuzz.core.lemmas import settled_lens
from specfuzz.gpu.device import Device
from specfuzz.reference.allocation import Pools
from specfuzz.reference.metrics_reporter import SchedulerMetricsReporter
from specfuzz.reference.req import Req
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.spec_info import GenerationBatchResult


@dataclass(slots=True)
class Settled:
    """What one result changed, in batch order: appended ids by rid, and the requests that it finished."""

    emitted: list[tuple[Req, list[int]]] = field(default_factory=list)
    finished: list[Req] = field(default_factory=list)


class SchedulerBatchResultProcessor:
    """Processes one result at a time, in the order of the launches."""

    def __init__(self, pools: Pools, device: Device, *, speculative: bool) -> None:
        """speculative: results of decode batches carry accepted runs."""
        self.pools = pools
        self.device = device
        self.speculative = speculative
        self.metrics_reporter = SchedulerMetricsReporter()

    def process_batch_result(self, batch: ScheduleBatch, result: GenerationBatchResult) -> Settled:
        """Wait for the copy, then settle every live row."""
        assert result.copy_done is not None
        result.copy_done.synchronize()
        allocator = self.pools.allocator
        allocator.free_group_begin()
        try:
            if batch.forward_mode.is_extend():
                return self.process_batch_result_prefill(batch, result)
            return self.process_batch_result_decode(batch, result)
        finally:
            allocator.free_group_end()

    def process_batch_result_prefill(self, batch: ScheduleBatch, result: GenerationBatchResult) -> Settled:
        """One sampled token per live row; an unfinished extend is handed to the tree.

        What a middle chunk sampled is thrown away. A live speculative tail of a MIXED batch has written the KV of its
        pending token, so it commits one; a plain one was committed when it was prepared.
        """
        settled = Settled()
        self.advance_grammar_fsm(batch, result)
        next_token_ids = self._host_ids(result)
        for req, token in zip(batch.reqs, next_token_ids, strict=True):
            if req.inflight_middle_chunks > 0:
                req.inflight_middle_chunks -= 1
                continue
            if self.is_dead(req):
                continue
            req.output_ids.append(token)
            req.update_finish_state(1)
            settled.emitted.append((req, [token]))
            is_tail = req in batch.decoding_reqs
            if req.finished():
                self.release_finished(req, settled)
            elif is_tail:
                if self.speculative:
                    req.kv.kv_committed_len += 1
            else:
                self.pools.tree_cache.checkpoint(req, req.extend_end)
                req.prefix_len = req.extend_end
        return settled

    def process_batch_result_decode(self, batch: ScheduleBatch, result: GenerationBatchResult) -> Settled:
        """The accepted run (speculative) or one token (plain) per live row."""
        settled = Settled()
        self.advance_grammar_fsm(batch, result)
        for req, run in zip(batch.reqs, self.resolve_spec_v2_tokens(batch, result), strict=True):
            if self.is_dead(req):
                continue
            req.output_ids.extend(run)
            req.update_finish_state(len(run))
            settled.emitted.append((req, run))
            if req.finished():
                self.release_finished(req, settled)
        return settled

    def resolve_spec_v2_tokens(self, batch: ScheduleBatch, result: GenerationBatchResult) -> list[list[int]]:
        """The run of every row, committing it for live rows; the only place where a verify moves the ledger."""
        ids = self._host_ids(result)
        if not self.speculative:
            return [[token] for token in ids]
        assert result.accept_lens_cpu is not None
        accept_lens = self.device.host_read(result.accept_lens_cpu).tolist()
        total, bs = sum(accept_lens), len(accept_lens)
        self.metrics_reporter.update_spec_metrics(bs, num_correct_drafts=total - bs, num_accept_tokens=total)
        runs = []
        for i, (req, accepted) in enumerate(zip(batch.reqs, accept_lens, strict=True)):
            run = ids[i * result.stride : i * result.stride + accepted]
            runs.append(run)
            if self.is_dead(req):
                continue
            if req.grammar is not None:
                assert result.grammar_retained_tokens is not None
                runs[i] = run = result.grammar_retained_tokens[i] or []
            req.kv.kv_committed_len, _ = settled_lens(req.kv.kv_committed_len, req.seqlen, len(run))
            req.spec_verify_ct += 1
            # Statistics are of the draft: what a grammar cuts off was drafted right.
            req.spec_num_correct_drafts += accepted - 1
            req.update_spec_correct_drafts_histogram(accepted - 1)
        return runs

    def advance_pending_grammar(self, queue: Iterable[tuple[ScheduleBatch, GenerationBatchResult]]) -> None:
        """Let the FSMs catch up with every result that is still queued: what they allow next depends on it."""
        for batch, result in queue:
            self.advance_grammar_fsm(batch, result)

    def advance_grammar_fsm(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        """Let the FSMs of live rows accept what the result holds, once: now, or when a later forward asked for it.

        What they retain of an accepted run is kept with the result; its rest is never committed.
        """
        if result.grammar_advanced or not batch.has_grammar:
            return
        result.grammar_advanced = True
        assert result.copy_done is not None
        result.copy_done.synchronize()
        ids = self._host_ids(result)
        lens = [1] * len(batch.reqs)
        if result.accept_lens_cpu is not None:
            lens = self.device.host_read(result.accept_lens_cpu).tolist()
        retained: list[list[int] | None] = [None] * len(batch.reqs)
        for i, req in enumerate(batch.reqs):
            if req.grammar is None or self.is_dead(req) or req.inflight_middle_chunks > 0:
                continue
            retained[i] = self.accept_grammar_tokens(req, ids[i * result.stride : i * result.stride + lens[i]])
        result.grammar_retained_tokens = retained

    def accept_grammar_tokens(self, req: Req, tokens: Sequence[int]) -> list[int]:
        """Let the FSM accept a run up to the token that completes the text; what follows it is never committed.

        Returns what was retained. A token that isn't allowed ends it, too, and aborts the request: no mask can have let
        it through, so FSM and masks disagree and nobody knows where the text stands.
        """
        grammar = req.grammar
        assert grammar is not None
        retained = []
        try:
            for token in tokens:
                grammar.accept_token(token)
                retained.append(token)
                if grammar.is_terminated():
                    break
        except ValueError:
            req.to_finish = "abort"
        return retained

    def is_dead(self, req: Req) -> bool:
        """Whether the request ended or was retracted while this result was in flight."""
        return req.finished() or req.is_retracted

    def release_finished(self, req: Req, settled: Settled) -> None:
        """Release a request that this result has finished."""
        settled.finished.append(req)
        self.pools.release_kv_cache(req, checkpoint=True)

    def _host_ids(self, result: GenerationBatchResult) -> list[int]:
        assert result.next_token_ids_cpu is not None
        ids: list[int] = self.device.host_read(result.next_token_ids_cpu).reshape(-1).tolist()
        return ids
