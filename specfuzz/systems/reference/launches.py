"""Watches the worker seam of the reference from outside: what each forward saw at entry and decided at exit.

The entry probe is an operation of its own on the forward stream, so it sees memory exactly as the worker's operations
do. What a forward decides is read off its result tensors once an event says that they are written. Neither declares
accesses or keeps a host binding alive.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from weakref import ref

from specfuzz.core.snapshot import LaunchView, WorkerEntry
from specfuzz.gpu.arrays import Array
from specfuzz.gpu.device import Buffer
from specfuzz.gpu.races import Access
from specfuzz.reference.schedule_batch import ForwardMode, ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.spec_info import EagleDraftInput, GenerationBatchResult
from specfuzz.systems.reference.launch_record import LaunchRecord

_FIELDS = tuple(f.name for f in fields(ScheduleBatch) if f.name not in ("relay_index_ids", "late_bound"))
#: Fields whose device values must not change in place between worker entry and settle.
_HELD = ("seq_lens", "req_pool_indices")


class LaunchWatcher:
    """Wraps run_batch, the worker and the two publishes of one scheduler object."""

    def __init__(self, scheduler: Scheduler) -> None:
        """scheduler: freshly made (and mutated, if it is to be)."""
        self._scheduler = scheduler
        self._forward = scheduler.streams.forward
        self._current: LaunchRecord | None = None
        self.count = 0
        self._numbers: dict[int, int] = {}  # by identity of the result, valid while it is queued
        self.open: list[LaunchRecord] = []
        runner, relay, worker = scheduler.forward, scheduler.future_map, scheduler.model_worker
        self._run_batch, self._work = runner.run_batch, worker.forward_batch_generation
        self._publish = relay.scatter_frontier  # below whatever decides what to publish
        runner.run_batch = self._watch_run_batch  # type: ignore[method-assign]
        worker.forward_batch_generation = self._watch_worker  # type: ignore[method-assign]
        relay.scatter_frontier = self._watch_publish  # type: ignore[method-assign]
        self._sample = runner.launch_batch_sample
        runner.launch_batch_sample = self._watch_sample  # type: ignore[method-assign]

    def release(self) -> None:
        """Let go of the engine. It holds this watcher at its seams: only the garbage collector could free the two."""
        vars(self).clear()

    def oldest_unpublished(self) -> LaunchRecord | None:
        """The oldest unsettled launch whose publish the device has not reached."""
        for record in self.open:
            if record.published is not None and not record.is_published():
                return record
        return None

    def queue(self) -> tuple[int, ...]:
        """Numbers of the results in the engine's queue, in its order."""
        queued = self._scheduler.result_queue
        return tuple([self._numbers[id(result)] for _, result in queued]) if queued else ()

    def settled(self, queue_before: tuple[int, ...]) -> int:
        """Mark the launch as settled whose result has left the engine's queue; returns its number."""
        left = self.queue()
        number = next(number for number in queue_before if number not in left)
        for record in self.open:
            if record.number == number:
                record.settled = True
        return number

    def views(self) -> tuple[LaunchView, ...]:
        """All open launches, those settled since the last call included once more."""
        if not self.open:
            return ()
        if self._scheduler.config.grammar:
            advanced = {
                self._numbers[id(result)]: result.grammar_advanced for _, result in self._scheduler.result_queue
            }
            for record in self.open:
                record.grammar_advanced = advanced.get(record.number, False)
        views = tuple([record.view() for record in self.open])
        self.open = [record for record in self.open if not record.settled]
        return views

    # ------------------------------------------------------------------ the seams
    def _watch_run_batch(self, batch: ScheduleBatch) -> GenerationBatchResult:
        self.count += 1
        record = LaunchRecord(self.count, batch, len(self._scheduler.result_queue))
        sampling = batch.sampling_info
        self._current = record
        self._bindings: dict[str, Any] = {}
        self._sampling_outside = sampling
        result = self._run_batch(batch)
        before, after = self._bindings, vars(batch)
        record.rebound = tuple([name for name in _FIELDS if after[name] is not before[name]])
        record.mode_after = batch.forward_mode.value
        self._bindings, self._sampling_outside, self._current = {}, None, None
        self.open.append(record)
        self._numbers[id(result)] = record.number
        return result

    def _watch_worker(self, batch: ScheduleBatch, on_publish: Any) -> GenerationBatchResult:
        record = self._current
        assert record is not None
        record.sampling_copied = batch.sampling_info is not self._sampling_outside
        self._bindings = vars(batch).copy()
        self._bindings["sampling_info"] = self._sampling_outside
        record.penalized = None if batch.sampling_info is None else batch.sampling_info.penalties
        self._launch_entry_probe(record, batch)
        result = self._work(batch, on_publish)
        frontier = batch.seq_lens if result.new_seq_lens is None else result.new_seq_lens
        assert frontier is not None
        record.outputs = (
            result.next_token_ids.watch(), None if result.accept_lens is None else result.accept_lens.watch(),
            frontier.watch(), result.stride,
        )  # fmt: skip
        if result.accept_index is not None:
            assert result.next_draft_input is not None
            record.tree = tuple(
                buffer.watch()
                for buffer in (
                    result.accept_index, result.tgt_cache_loc, result.accept_out_cache_loc,
                    result.next_draft_input.bonus_tokens,
                )
                if buffer is not None
            )  # fmt: skip
        record.returned = self._forward.record("worker returned")
        record.samples_later = result.delay_sample_func is not None
        return result

    def _watch_sample(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        self._sample(batch, result)
        number = self._numbers[id(result)]
        for record in self.open:
            if record.number == number:
                record.returned, record.samples_later = self._forward.record("sampled"), False

    def _launch_entry_probe(self, record: LaunchRecord, batch: ScheduleBatch) -> None:
        record.held_refs = {name: ref(getattr(batch, name)) for name in _HELD}
        config, info = self._scheduler.config, batch.spec_info
        table = self._scheduler.req_to_token_pool.req_to_token
        if batch.forward_mode is ForwardMode.DECODE and isinstance(info, EagleDraftInput):
            relayed: tuple[Any, ...] = (info.bonus_tokens, info.topk_index, info.hidden_states)
            self._forward.launch(
                "entry_probe", _entry_decode_kernel, record, batch.seq_lens, batch.req_pool_indices, table,
                config.draft_token_num, relayed,
            )  # fmt: skip
        else:
            lens = batch.extend_lens if batch.forward_mode.is_extend() else [1] * batch.batch_size()
            self._forward.launch(
                "entry_probe", _entry_extend_kernel, record, batch.seq_lens, batch.req_pool_indices, batch.input_ids,
                batch.out_cache_loc, lens,
            )  # fmt: skip

    def _watch_publish(self, batch: ScheduleBatch, seq_lens: Buffer, step: int) -> None:
        record = self._current
        assert record is not None
        self._publish(batch, seq_lens, step)
        record.publishes += 1
        record.frontier = (seq_lens.watch(), step)
        record.published = record.returned = self._forward.record("published")


def _hold(record: LaunchRecord, seq_lens: Array, rows: Array) -> tuple[list[int], list[int]]:
    lens, ids = seq_lens.tolist(), rows.tolist()
    refs = record.held_refs
    record.held = {"seq_lens": (refs["seq_lens"], lens), "req_pool_indices": (refs["req_pool_indices"], ids)}
    return lens, ids


def _entry_decode_kernel(
    access: Access,
    record: LaunchRecord,
    seq_lens: Array,
    rows: Array,
    table: Array,
    width: int,
    relayed: list[Array],
) -> None:
    lens, _ = _hold(record, seq_lens, rows)
    cells = table[rows].tolist()
    bonus, topk, hidden = [tuple(column.tolist()) for column in relayed]
    seeds: tuple[tuple[int, ...], ...] = ()
    if isinstance(topk[0], list):  # a tree has a seed per branch
        seeds = tuple(map(tuple, topk))
        topk = tuple(first for first, *_ in seeds)
    starts = [max(length, 0) for length in lens]
    window = tuple([tuple(row[start : start + width]) for row, start in zip(cells, starts, strict=True)])
    record.entry = WorkerEntry(
        seq_lens=tuple(lens), input_tokens=tuple([(token,) for token in bonus]), window=window, prefix_lens=tuple(lens),
        bonus=bonus, topk_index=topk, hidden=hidden, topk_seeds=seeds,
    )  # fmt: skip


def _entry_extend_kernel(
    access: Access,
    record: LaunchRecord,
    seq_lens: Array,
    rows: Array,
    input_ids: Array,
    out_cache_loc: Array,
    extend_lens: list[int],
) -> None:
    lens, _ = _hold(record, seq_lens, rows)
    record.entry = WorkerEntry(
        seq_lens=tuple(lens), input_tokens=_windows(input_ids.tolist(), extend_lens),
        window=_windows(out_cache_loc.tolist(), extend_lens),
        prefix_lens=tuple([length - extend for length, extend in zip(lens, extend_lens, strict=True)]),
    )  # fmt: skip


def _windows(flat: list[int], lens: list[int]) -> tuple[tuple[int, ...], ...]:
    windows, start = [], 0
    for length in lens:
        windows.append(tuple(flat[start : start + length]))
        start += length
    return tuple(windows)
