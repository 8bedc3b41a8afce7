"""Watches the worker seam of the reference from outside: what each forward saw at entry and decided at exit.

The entry probe is an operation of its own on the forward stream, so it sees memory exactly as the worker's operations
do. What a forward decides is read off its result tensors once an event says that they are written. Neither declares
accesses or keeps a host binding alive.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from weakref import ref

from specfuzz.core.snapshot import LaunchView, WorkerEntry, WorkerExit
from specfuzz.gpu.arrays import Array
from specfuzz.gpu.device import Buffer, Event
from specfuzz.gpu.memory import Watch
from specfuzz.gpu.races import Access
from specfuzz.reference.sampling import Penalties
from specfuzz.reference.schedule_batch import ForwardMode, ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.spec_info import EagleDraftInput, GenerationBatchResult

_FIELDS = tuple(f.name for f in fields(ScheduleBatch) if f.name not in ("relay_index_ids", "late_bound"))
#: Fields whose device values must not change in place between worker entry and settle.
_HELD = ("seq_lens", "req_pool_indices")


class LaunchRecord:
    """Everything known about one forward; turned into a LaunchView by `view`."""

    def __init__(self, number: int, batch: ScheduleBatch, unsettled_before: int) -> None:
        """batch: as it is handed to run_batch."""
        reqs = batch.reqs
        self.number = number
        self.mode = batch.forward_mode.value
        self.rids = tuple([req.rid for req in reqs])
        self.rows = tuple(batch.req_pool_indices_cpu)
        self.committed = tuple([req.kv.kv_committed_len for req in reqs])
        self.allocated = tuple([req.kv.kv_allocated_len for req in reqs])
        self.dead = tuple([req.rid for req in reqs if req.finished_reason is not None or req.is_retracted])
        self.unsettled_before = unsettled_before
        self.rebound: tuple[str, ...] | None = None
        self.sampling_copied: bool | None = None
        self.mode_after: str | None = None
        self.publishes = 0
        self.published: Event | None = None
        self._published = False
        self.settled = False
        self.entry: WorkerEntry | None = None
        self.exit: WorkerExit | None = None
        self.grammar_advanced = False
        self.samples_later = False
        self.penalized: Penalties | None = None
        self.returned: Event | None = None  # behind all that the worker has enqueued
        self.outputs: tuple[Watch, Watch | None, Watch, int] | None = None  # ids, accept_lens, new_seq_lens, stride
        self.tree: tuple[Watch, ...] | None = None  # accept_index, targets and sources of the move, bonus_tokens
        self.frontier: tuple[Watch, int] | None = None  # what was published, and what the publish adds to it
        self.held: dict[str, tuple[ref[Buffer], list[int]]] = {}
        self.held_refs: dict[str, ref[Buffer]] = {}
        self._told: tuple[bool, bool] = (False, False)
        self._last: LaunchView | None = None

    def view(self) -> LaunchView:
        """The record as plain data; the same object while nothing changed."""
        if self.exit is None and self.returned is not None and not self.samples_later and self.returned.query():
            self.exit = self._read_exit()
        entered, exited = self.entry is not None, self.exit is not None
        published = self.is_published()
        held_changed: tuple[str, ...] = ()
        for name, (buffer, values) in self.held.items():
            alive = buffer()
            if alive is not None and alive.peek().tolist() != values:
                held_changed += (name,)
        last = self._last
        if (
            last is not None
            and not last.entry_now
            and not last.exit_now
            and self._told == (entered, exited)
            and last.settled == self.settled
            and last.published == published
            and last.held_changed == held_changed
            and last.grammar_advanced == self.grammar_advanced
        ):
            return last
        self._last = LaunchView(
            number=self.number, mode=self.mode, rids=self.rids, req_pool_indices=self.rows, committed=self.committed,
            allocated=self.allocated, dead=self.dead, unsettled_before=self.unsettled_before, rebound=self.rebound,
            sampling_copied=self.sampling_copied, mode_after=self.mode_after, held_changed=held_changed,
            entry=self.entry, exit=self.exit, publishes=self.publishes, published=published, settled=self.settled,
            entry_now=entered and not self._told[0], exit_now=exited and not self._told[1],
            grammar_advanced=self.grammar_advanced, penalized=self.penalized,
        )  # fmt: skip
        self._told = (entered, exited)
        return self._last

    def is_published(self) -> bool:
        """Whether the device has reached the publish; what has run stays so."""
        if not self._published and self.published is not None:
            self._published = self.published.query()
        return self._published

    def _read_exit(self) -> WorkerExit:
        assert self.outputs is not None
        next_token_ids, accept_lens, frontier, stride = self.outputs
        ids, new_seq_lens = next_token_ids.read(), tuple(frontier.read())
        runs: list[Any] = ids if stride > 1 else [[token] for token in ids]
        accepted = (1,) * len(new_seq_lens) if accept_lens is None else tuple(accept_lens.read())
        published = None
        if self.frontier is not None:
            watch, step = self.frontier
            published = tuple([length + step for length in watch.read()])
        return WorkerExit(
            accept_lens=accepted, new_seq_lens=new_seq_lens, published=published,
            next_tokens=tuple([tuple(run[:length]) for run, length in zip(runs, accepted, strict=True)]),
            **self._read_tree(),
        )  # fmt: skip

    def _read_tree(self) -> dict[str, Any]:
        if self.tree is None:
            return {}
        accept_index, targets, sources, bonus = (watch.read() for watch in self.tree)
        return {
            "accept_index": tuple(map(tuple, accept_index)), "bonus": tuple(bonus),
            "moved": tuple(tuple(zip(*lanes, strict=True)) for lanes in zip(targets, sources, strict=True)),
        }  # fmt: skip


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
