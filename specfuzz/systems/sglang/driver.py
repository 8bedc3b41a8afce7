"""Executes events on the real scheduler: one scheduler iteration of SGLang, cut at its own seams.

`prefill`, `mix`, `prepare` and `retract` begin as `get_next_batch_to_run` does; `prefill` and `mix` then admit exactly
one request (see `admission`); `prepare` runs `update_running_batch`; `verify` runs `run_batch` on what was prepared;
`settle` hands the oldest result to the real result processor.
`publish` and `advance` do nothing: on a CPU the device work of a launch is done when the launch returns.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from specfuzz.core import event as ev
from specfuzz.core.config import EngineConfig
from specfuzz.core.language import STOP_TOKEN, prompt_tokens
from specfuzz.core.receipt import NOTHING, Receipt
from specfuzz.systems.sglang import admission
from specfuzz.systems.sglang.grammar import grammar_class
from specfuzz.systems.sglang.harness import VOCAB_SIZE, Rig
from specfuzz.systems.sglang.launches import Launch, LaunchLog
from specfuzz.systems.sglang.ledger_writes import WriteLog
from specfuzz.systems.sglang.rids import engine_rid, event_rid
from specfuzz.systems.sglang.versions import Engine


class Driver:
    """One run on one fresh engine. `apply` executes an event and says what the engine decided by itself."""

    def __init__(self, engine: Engine, config: EngineConfig) -> None:
        """config: already published as SGLang's server configuration."""
        self.writes = WriteLog(engine)
        self.rig = Rig(engine, config)
        self.engine = engine
        self.config = config
        self.scheduler = self.rig.scheduler
        self.reqs: dict[str, Any] = {}
        self.gone: set[str] = set()  # aborted without a result: the engine answered and forgot them
        self.prepared: Any = None
        self.queue: deque[Launch] = deque()  # launched and unsettled, oldest first; mirrors result_queue under overlap
        self.log = LaunchLog(self.rig)
        self.settled_now: list[Launch] = []
        self._evicted = 0
        self._grammar = grammar_class(engine)
        self._watch_evictions()
        self._apply: dict[type[ev.Event], Callable[[Any], Receipt]] = {
            ev.Submit: self._submit,
            ev.Prefill: self._prefill,
            ev.Mix: self._prefill,
            ev.Prepare: self._prepare,
            ev.Verify: self._verify,
            ev.Settle: self._settle,
            ev.Finish: self._finish,
            ev.Abort: self._abort,
            ev.Retract: self._retract,
            ev.Evict: self._evict,
            ev.Idle: self._idle,
            ev.Publish: lambda _event: NOTHING,
            ev.Advance: lambda _event: NOTHING,
        }

    def apply(self, event: ev.Event) -> Receipt:
        """Run the event's scheduler code to its end; whatever the engine raises passes through."""
        self._evicted = 0
        self.settled_now = []
        self.writes.begin()
        self.log.begin()
        return self._apply[type(event)](event)

    # ------------------------------------------------------------------ requests
    def _submit(self, event: ev.Submit) -> Receipt:
        sampling = self.engine.SamplingParams(max_new_tokens=event.max_new, temperature=0)
        sampling.normalize(None)
        req = self.engine.Req(
            rid=engine_rid(event.rid),
            origin_input_text="",
            origin_input_ids=array("q", prompt_tokens(event.rid, event.prompt_len, event.shared_len)),
            sampling_params=sampling,
            eos_token_ids={STOP_TOKEN},
            vocab_size=VOCAB_SIZE,
        )
        if event.grammar:
            req.grammar = self._grammar(event.grammar)
            self.rig.worker.grammar_ends[req.rid] = event.prompt_len + event.grammar - 1
        self.reqs[event.rid] = req
        self.writes.adopt(event.rid, req)
        self.scheduler._add_request_to_queue(req)
        return NOTHING

    def _finish(self, event: ev.Finish) -> Receipt:
        rid, prompt_len = engine_rid(event.rid), len(self.reqs[event.rid].origin_input_ids)
        stops = self.rig.worker.stops
        stops[rid] = stops.get(rid, frozenset()) | {prompt_len + event.at}
        return NOTHING

    def _abort(self, event: ev.Abort) -> Receipt:
        self.scheduler.abort_request(self.engine.AbortReq(rid=engine_rid(event.rid)))
        return Receipt(finished=self._answered())

    def _answered(self) -> tuple[tuple[str, str, int | None], ...]:
        """Requests that the engine has dropped with an abort answer since the last call."""
        rids = [event_rid(rid) for rid in self.rig.dropped_by_engine]
        self.rig.dropped_by_engine.clear()
        self.gone.update(rids)
        return tuple((rid, "abort", None) for rid in rids)

    # ------------------------------------------------------------------ scheduling
    def _prefill(self, event: ev.Prefill | ev.Mix) -> Receipt:
        admission.begin(self.scheduler)
        aborted = self._answered()
        batch, refused = admission.admit(self.rig, self.reqs[event.rid], event.n)
        if batch is None:
            return Receipt(refused=refused, finished=aborted, evicted=self._evicted)
        admitted = (event.rid, int(batch.prefix_lens[0]), int(batch.extend_lens[0]))
        dropped = admission.mix(self.rig, batch) if type(event) is ev.Mix else []
        return replace(
            self._launch(batch), admitted=(admitted,), dropped=tuple(event_rid(req.rid) for req in dropped),
            finished=aborted,
        )  # fmt: skip

    def _prepare(self, _event: ev.Prepare) -> Receipt:
        scheduler = self.scheduler
        admission.begin(scheduler)
        aborted = self._answered()
        running = scheduler.running_batch
        if running.is_empty():
            return Receipt(finished=aborted) if aborted else NOTHING
        before, queued = list(running.reqs), list(scheduler.waiting_queue)
        batch = scheduler.update_running_batch(running)
        aborted += self._answered()
        ended = {rid for rid, _reason, _len in aborted}
        retracted = tuple(event_rid(req.rid) for req in scheduler.waiting_queue if req not in queued)
        kept = {event_rid(req.rid) for req in running.reqs}
        left = [event_rid(req.rid) for req in before]
        dropped = tuple(rid for rid in left if rid not in kept and rid not in retracted and rid not in ended)
        self.prepared = batch if batch is not None and not batch.is_empty() else None
        return Receipt(
            mode="DECODE" if self.prepared is not None else "",
            rows=() if self.prepared is None else tuple(event_rid(req.rid) for req in batch.reqs),
            retracted=retracted,
            dropped=dropped,
            skipped=batch is None,
            finished=aborted,
            evicted=self._evicted,
        )

    def _verify(self, event: ev.Verify) -> Receipt:
        self.rig.worker.accept = {engine_rid(rid): length for rid, length in event.accept}
        batch, self.prepared = self.prepared, None
        return self._launch(batch)

    def _launch(self, batch: Any) -> Receipt:
        scheduler, mode = self.scheduler, batch.forward_mode.name
        launch = self.log.open(batch, mode, [event_rid(req.rid) for req in batch.reqs], len(self.queue))
        launch.result = scheduler.run_batch(batch)
        self.log.close(launch, batch)
        if self.config.overlap:
            scheduler._apply_war_barrier()
            launch.batch = batch.copy()
            scheduler.result_queue.append((launch.batch, launch.result))
        else:
            launch.batch = batch  # the synchronous loop hands over the batch itself
        self.queue.append(launch)
        scheduler.last_batch = batch
        self._sample_if_needed()
        return Receipt(launch=launch.number, mode=mode, rows=launch.rids, evicted=self._evicted)

    def _sample_if_needed(self) -> None:
        """The loop samples a plain constrained batch behind the processing of the result before it."""
        if len(self.queue) == 1 and self.queue[0].result.delay_sample_func is not None:
            launch = self.queue[0]
            self.scheduler.launch_batch_sample_if_needed(launch.result, self.scheduler.last_batch)
            self.log.sampled(launch)

    def _retract(self, event: ev.Retract) -> Receipt:
        scheduler = self.scheduler
        admission.begin(scheduler)
        aborted = self._answered()
        running, req = scheduler.running_batch, self.reqs[event.rid]
        if req not in running.reqs:
            return Receipt(refused="not in the running batch", finished=aborted)
        index = running.reqs.index(req)
        keep = [other for other in range(len(running.reqs)) if other != index]
        running.release_req(index, len(keep))
        running.filter_batch(keep_indices=keep)
        scheduler._add_request_to_queue(req, is_retracted=True)
        return Receipt(retracted=(event.rid,), finished=aborted, evicted=self._evicted)

    def _evict(self, event: ev.Evict) -> Receipt:
        self.rig.tree.evict(self.engine.EvictParams(num_tokens=event.n))
        return Receipt(evicted=self._evicted)

    # ------------------------------------------------------------------ results
    def _settle(self, _event: ev.Settle) -> Receipt:
        return self._settle_oldest()

    def _settle_oldest(self) -> Receipt:
        launch = self.queue.popleft()
        if self.config.overlap:
            batch, result = self.scheduler.result_queue.popleft()
        else:
            batch, result = launch.batch, launch.result
        reqs = list(batch.reqs)
        before = [(len(req.output_ids), req.finished()) for req in reqs]
        processor = self.scheduler.batch_result_processor
        if batch.forward_mode.is_decode():
            processor.process_batch_result_decode(batch, result)
        else:
            processor.process_batch_result_prefill(batch, result)
        self.settled_now.append(launch)
        self._sample_if_needed()
        emitted, finished = [], []
        for req, (length, was_finished) in zip(reqs, before, strict=True):
            rid = event_rid(req.rid)
            if len(req.output_ids) > length:
                emitted.append((rid, tuple(req.output_ids[length:])))
            if req.finished() and not was_finished:
                finished.append((rid, self.reason(req), req.finished_len))
        return Receipt(settled=launch.number, emitted=tuple(emitted), finished=tuple(finished), evicted=self._evicted)

    def _idle(self, _event: ev.Idle) -> Receipt:
        self.scheduler.process_pending_chunked_abort()  # an idle server schedules as well
        aborted = self._answered()
        receipts = [self._settle_oldest() for _ in range(len(self.queue))]
        if not receipts and not aborted:
            return NOTHING
        return Receipt(
            settled=receipts[-1].settled if receipts else None,
            emitted=_joined([receipt.emitted for receipt in receipts]),
            finished=aborted + tuple(entry for receipt in receipts for entry in receipt.finished),
            evicted=self._evicted,
        )

    def reason(self, req: Any) -> str:
        """The finish reason in the words of receipts."""
        reason = req.finished_reason
        if isinstance(reason, self.engine.FINISH_MATCHED_TOKEN):
            return "stop"
        if isinstance(reason, self.engine.FINISH_LENGTH):
            return "length"
        if isinstance(reason, self.engine.FINISH_ABORT):
            return "abort"
        return type(reason).__name__

    def _watch_evictions(self) -> None:
        tree = self.rig.tree
        evict = type(tree).evict

        def counting(params: Any) -> Any:
            result = evict(tree, params)
            self._evicted += result.num_tokens_evicted
            return result

        tree.evict = counting


def _joined(
    parts: list[tuple[tuple[str, tuple[int, ...]], ...]],
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Emissions of several results, one entry per request in order of first appearance."""
    tokens: dict[str, tuple[int, ...]] = {}
    for part in parts:
        for rid, run in part:
            tokens[rid] = tokens.get(rid, ()) + run
    return tuple(tokens.items())
