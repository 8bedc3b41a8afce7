"""Builds snapshots of the reference: plain data, shared with the snapshot before wherever nothing changed."""

from __future__ import annotations

from typing import Any, Protocol

from specfuzz.core.config import EngineConfig
from specfuzz.core.snapshot import (
    BatchView,
    CachedPath,
    DeviceView,
    MetricsView,
    PoolView,
    RaceView,
    RelayRow,
    RelayView,
    ReqView,
    Snapshot,
    WriteRecord,
)
from specfuzz.gpu.device import Buffer, Device
from specfuzz.reference.future_map import CONSUMED
from specfuzz.reference.req import Req
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.spec_info import EagleDraftInput
from specfuzz.systems.reference.launches import LaunchWatcher


class Viewed(Protocol):
    """What a viewer looks at: one engine, its device, the watcher at its worker seam, and what the adapter keeps.

    reqs: every request ever submitted, by rid. gone: rids that were answered without a finish reason of their own.
    checks_races: whether anybody looks for races. prepared: the batch that waits for its launch.
    """

    config: EngineConfig
    device: Device
    scheduler: Scheduler
    watcher: LaunchWatcher
    reqs: dict[str, Req]
    gone: set[str]
    checks_races: bool
    prepared: ScheduleBatch | None


class Viewer:
    """Remembers the last view of everything, with the facts from which it was built."""

    def __init__(self, system: Viewed) -> None:
        """system: freshly reset."""
        self._system = system
        self._reqs: dict[str, tuple[Any, ReqView]] = {}
        self._pool: tuple[Any, PoolView] | None = None
        self._paths: tuple[int, tuple[CachedPath, ...]] = (-1, ())
        self._batches: dict[str, tuple[Any, BatchView]] = {}
        self._cells: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._rows: tuple[int, Any, dict[str, tuple[int, ...]]] | None = None
        self._device: DeviceView | None = None
        self._relay: tuple[Any, RelayView] | None = None
        self._metrics: MetricsView | None = None

    def snapshot(self, writes: tuple[WriteRecord, ...], *, idle: bool) -> Snapshot:
        """The state now. writes: made since the last snapshot."""
        system = self._system
        scheduler, device = system.scheduler, system.device
        launches = system.watcher.views()
        reqs = {rid: self._req(req) for rid, req in system.reqs.items()}
        holders = [req for req in system.reqs.values() if req.kv.req_pool_idx is not None]
        pending, progress = device.pending(), device.progress
        races = device.take_races()
        batches = [("running", scheduler.running_batch)]
        if system.prepared is not None:
            batches.append(("prepared", system.prepared))
        if scheduler.last_batch is not None and scheduler.last_batch is not scheduler.running_batch:
            batches.append(("last", scheduler.last_batch))
        return Snapshot(
            reqs=reqs,
            pool=self._pool_view(),
            waiting=_rids_of(scheduler.waiting_queue),
            running=_rids_of(scheduler.running_batch.reqs),
            chunked=() if scheduler.chunked_req is None else (scheduler.chunked_req.rid,),
            prepared=None if system.prepared is None else _rids_of(system.prepared.reqs),
            queue=system.watcher.queue(),
            batches=tuple([self._batch(name, batch, progress) for name, batch in batches if batch.reqs]),
            launches=launches,
            relay=self._relay_view(holders, pending == 0),
            device=self._device_view(holders, pending),
            writes=writes,
            races=(tuple([_race(race) for race in races]) if races else ()) if system.checks_races else None,
            on_idle=idle,
            metrics=self._metrics_view(),
        )

    def _metrics_view(self) -> MetricsView:
        found, known = self._system.scheduler.result_processor.metrics_reporter, self._metrics
        if (
            known is None
            or known.spec_num_forward_ct != found.spec_num_forward_ct
            or known.spec_num_accept_tokens != found.spec_num_accept_tokens
            or known.spec_num_correct_drafts != found.spec_num_correct_drafts
        ):
            known = self._metrics = MetricsView(
                spec_num_forward_ct=found.spec_num_forward_ct, spec_num_accept_tokens=found.spec_num_accept_tokens,
                spec_num_correct_drafts=found.spec_num_correct_drafts,
            )  # fmt: skip
        return known

    def _req(self, req: Req) -> ReqView:
        kv, gone = req.kv, req.rid in self._system.gone
        known = self._reqs.get(req.rid)
        table, row = self._system.scheduler.req_to_token_pool, kv.req_pool_idx
        slots = None if row is None else table.host_rows[row][: kv.kv_allocated_len]
        grammar = None if req.grammar is None else (tuple(req.grammar.accepted), req.grammar.is_terminated())
        facts: tuple[Any, ...] = (
            kv.kv_committed_len, kv.kv_allocated_len, kv.cache_protected_len, row, slots,
            req.finished_reason, req.finished_len, req.to_finish, req.is_retracted, req.retraction_count,
            req.decode_batch_idx, req.extend_batch_idx, req.inflight_middle_chunks, req.spec_verify_ct,
            req.spec_num_correct_drafts, req.spec_correct_drafts_histogram, req.output_ids, req.lock is None, gone,
            grammar,
        )  # fmt: skip
        if known is not None and known[0] == facts:
            return known[1]
        facts = tuple([fact[:] if type(fact) is list else fact for fact in facts])  # the engine goes on with its own
        view = ReqView(
            rid=req.rid, prompt_len=len(req.origin_input_ids), max_new=req.max_new_tokens,
            output_ids=tuple(req.output_ids), kv_committed_len=kv.kv_committed_len,
            kv_allocated_len=kv.kv_allocated_len,
            cache_protected_len=kv.cache_protected_len, req_pool_idx=row, slots=tuple(slots or ()),
            finished_reason="abort" if gone else req.finished_reason, finished_len=req.finished_len,
            to_finish=req.to_finish is not None and not gone, is_retracted=req.is_retracted,
            retraction_count=req.retraction_count,
            decode_batch_idx=req.decode_batch_idx, extend_batch_idx=req.extend_batch_idx,
            inflight_middle_chunks=req.inflight_middle_chunks, spec_verify_ct=req.spec_verify_ct,
            spec_num_correct_drafts=req.spec_num_correct_drafts,
            spec_correct_drafts_histogram=tuple(req.spec_correct_drafts_histogram),
            holds_lock=req.lock is not None, grammar_accepted=None if grammar is None else grammar[0],
            grammar_terminated=grammar is not None and grammar[1],
        )  # fmt: skip
        self._reqs[req.rid] = (facts, view)
        return view

    def _pool_view(self) -> PoolView:
        scheduler = self._system.scheduler
        allocator, tree, table, config = (
            scheduler.allocator, scheduler.tree_cache, scheduler.req_to_token_pool, self._system.config,
        )  # fmt: skip
        facts = (
            tuple(allocator.free_pages),
            tuple(table.free_slots),
            tree.version,
            tree.evictable_size,
            tree.protected_size,
        )
        if self._pool is not None and self._pool[0] == facts:
            return self._pool[1]
        if self._paths[0] != tree.version:
            paths = tuple(CachedPath(tokens=_tokens(keys), slots=tuple(slots)) for keys, slots in tree.paths())
            self._paths = (tree.version, paths)
        view = PoolView(
            page_size=config.page_size, num_pages=config.num_pages, max_reqs=config.max_reqs, free_pages=facts[0],
            free_rows=facts[1], available=allocator.available_size(), evictable=tree.evictable_size,
            protected=tree.protected_size, row_width=table.width, cached=self._paths[1],
        )  # fmt: skip
        self._pool = (facts, view)
        return view

    def _batch(self, name: str, batch: ScheduleBatch, progress: int) -> BatchView:
        info, lens = batch.spec_info, batch.seq_lens
        future = info.future_indices if isinstance(info, EagleDraftInput) else None
        facts: tuple[Any, ...] = (
            batch.reqs, batch.forward_mode, None if lens is None else lens.id, progress, batch.seq_lens_cpu, future,
            batch.req_pool_indices_cpu, None if batch.sampling_info is None else batch.sampling_info.penalties,
        )  # fmt: skip
        known = self._batches.get(name)
        if known is not None and known[0] == facts:
            return known[1]
        facts = tuple([fact[:] if type(fact) is list else fact for fact in facts])  # the engine goes on with its own
        view = BatchView(
            name=name, rids=_rids_of(batch.reqs), forward_mode=batch.forward_mode.value,
            req_pool_indices=tuple(batch.req_pool_indices_cpu), seq_lens=_peek(lens),
            seq_lens_cpu=None if batch.seq_lens_cpu is None else tuple(batch.seq_lens_cpu), future_indices=future,
            penalized=facts[-1],
        )  # fmt: skip
        self._batches[name] = (facts, view)
        return view

    def _relay_view(self, holders: list[Req], quiet: bool) -> RelayView:
        relay = self._system.scheduler.future_map
        buffers = (relay.new_seq_lens_buf, relay.output_tokens_buf, relay.topk_index_buf, relay.hidden_states_buf)
        facts = ([(req.rid, req.kv.req_pool_idx) for req in holders], [buffer.version for buffer in buffers])
        known = self._relay
        if known is not None and known[0] == facts:
            if known[1].quiet is not quiet:
                known = self._relay = (facts, RelayView(rows=known[1].rows, quiet=quiet))
            return known[1]
        lens, tokens, topk, hidden = [buffer.peek().tolist() for buffer in buffers]
        rows = {}
        seeds = topk if len(relay.topk_index_buf.shape) > 1 else None
        if seeds is not None:
            topk = [first for first, *_ in seeds]
        for req in holders:
            row = req.kv.req_pool_idx or 0
            rows[req.rid] = RelayRow(
                row=row, new_seq_len=_known(lens[row]), output_token=_known(tokens[row]),
                topk_index=_known(topk[row]), hidden=_known(hidden[row]),
                topk_seeds=None if seeds is None else tuple(seeds[row]),
            )  # fmt: skip
        view = RelayView(rows=rows, quiet=quiet)
        self._relay = (facts, view)
        return view

    def _device_view(self, holders: list[Req], pending: int) -> DeviceView:
        pool = self._system.scheduler.kv_pool
        target, second = self._cells_of(pool.target_v1), self._cells_of(pool.target_v2)
        draft = None if pool.draft is None else self._cells_of(pool.draft)
        rows, view = self._device_rows(holders), self._device
        if (
            view is None
            or view.rows is not rows
            or view.target_v1 is not target
            or view.target_v2 is not second
            or view.draft_v1 is not draft
            or view.pending != pending
        ):
            view = self._device = DeviceView(
                target_v1=target, target_v2=second, draft_v1=draft, rows=rows, pending=pending
            )
        return view

    def _device_rows(self, holders: list[Req]) -> dict[str, tuple[int, ...]]:
        table = self._system.scheduler.req_to_token_pool.req_to_token
        held = [(req.rid, req.kv.req_pool_idx or 0, req.kv.kv_allocated_len) for req in holders]
        version, known = table.version, self._rows
        if known is None or known[0] != version or known[1] != held:
            cells = table.peek()
            found = {rid: tuple(cells[row, :length].tolist()) for rid, row, length in held}
            known = self._rows = (version, held, found)
        return known[2]

    def _cells_of(self, buffer: Buffer) -> tuple[int, ...]:
        known = self._cells.get(buffer.name)
        if known is None or known[0] != buffer.version:
            known = self._cells[buffer.name] = (buffer.version, tuple(buffer.peek().tolist()))
        return known[1]


def _rids_of(reqs: list[Req]) -> tuple[str, ...]:
    return tuple([req.rid for req in reqs]) if reqs else ()


def _tokens(keys: tuple[Any, ...]) -> tuple[int, ...]:
    if not keys or not isinstance(keys[0], tuple):
        return keys
    return (*(first for first, _ in keys), keys[-1][1])


def _peek(buffer: Buffer | None) -> tuple[int, ...] | None:
    return None if buffer is None else tuple(buffer.peek().tolist())


def _known(value: int) -> int | None:
    return None if value == CONSUMED else value


def _race(race: Any) -> RaceView:
    return RaceView(
        kind=race.kind, buffer=race.buffer, row=race.row, first=race.first, first_stream=race.first_stream,
        second=race.second, second_stream=race.second_stream,
    )  # fmt: skip
