"""Turns the real engine's state into `core.snapshot` records: peeks only, nothing is computed by asking the engine.

Records are shared with the previous snapshot while what they show did not change; `is` therefore means "unchanged".
"""

from __future__ import annotations

from typing import Any

from specfuzz.core.snapshot import (
    BatchView,
    CachedPath,
    DeviceView,
    LaunchView,
    MetricsView,
    PoolView,
    RelayRow,
    RelayView,
    ReqView,
    Snapshot,
)
from specfuzz.systems.sglang.driver import Driver
from specfuzz.systems.sglang.penalties import counted
from specfuzz.systems.sglang.rids import event_rid


class Observer:
    """Takes the snapshots of one driver's run."""

    def __init__(self, driver: Driver) -> None:
        """driver: the run to look at."""
        self._driver = driver
        self._reqs: dict[str, tuple[Any, ReqView]] = {}
        self._pool: tuple[Any, PoolView] | None = None
        self._cached: tuple[int, tuple[CachedPath, ...] | None] = (-1, None)
        self._device: tuple[Any, DeviceView] | None = None
        self._cells: tuple[int, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None]] | None = None
        self._relay: tuple[Any, RelayView] | None = None
        self._metrics: MetricsView | None = None
        self._last_batches: tuple[BatchView, ...] = ()
        self._last_launches: tuple[LaunchView, ...] = ()

    def snapshot(self, *, idle: bool = False) -> Snapshot:
        """The state now. idle: the idle checks ran in the last event."""
        driver, scheduler = self._driver, self._driver.scheduler
        reqs = {rid: self._req(rid, req) for rid, req in driver.reqs.items()}
        prepared = driver.prepared
        return Snapshot(
            reqs=reqs,
            pool=self._pool_view(),
            waiting=tuple(event_rid(req.rid) for req in scheduler.waiting_queue),
            running=tuple(event_rid(req.rid) for req in scheduler.running_batch.reqs),
            chunked=() if scheduler.chunked_req is None else (event_rid(scheduler.chunked_req.rid),),
            prepared=None if prepared is None else tuple(event_rid(req.rid) for req in prepared.reqs),
            queue=tuple(launch.number for launch in driver.queue),
            batches=self._batches(),
            launches=self._launches(),
            relay=self._relay_view(reqs),
            device=self._device_view(reqs),
            writes=tuple(driver.writes.records) if driver.writes.recording else None,
            races=None,
            on_idle=idle,
            metrics=self._metrics_view(),
        )

    # ------------------------------------------------------------------ host
    def _metrics_view(self) -> MetricsView | None:
        found = self._driver.scheduler.metrics_reporter
        view = MetricsView(
            spec_num_forward_ct=found.spec_num_forward_ct, spec_num_accept_tokens=found.spec_num_accept_tokens,
            spec_num_correct_drafts=found.spec_num_correct_drafts,
        )  # fmt: skip
        if self._metrics != view:
            self._metrics = view
        return self._metrics

    def _req(self, rid: str, req: Any) -> ReqView:
        kv = req.kv
        slots: tuple[int, ...] = ()
        if kv.req_pool_idx is not None:
            slots = tuple(self._driver.rig.rows.req_to_token[kv.req_pool_idx, : kv.kv_allocated_len].tolist())
        gone = rid in self._driver.gone
        accepted = None if req.grammar is None else tuple(req.grammar.accepted)
        key = (
            len(req.output_ids), kv.kv_committed_len, kv.kv_allocated_len, kv.cache_protected_len, kv.req_pool_idx,
            slots, req.finished_reason, req.finished_len, req.to_finish, req.is_retracted, req.retraction_count,
            req.decode_batch_idx, req.extend_batch_idx, req.inflight_middle_chunks, req.spec_verify_ct,
            req.spec_num_correct_drafts, tuple(req.spec_correct_drafts_histogram), req.lock is None, gone,
            accepted,
        )  # fmt: skip
        known = self._reqs.get(rid)
        if known is not None and known[0] == key:
            return known[1]
        finished = "abort" if gone else self._driver.reason(req) if req.finished() else None
        view = ReqView(
            rid=rid,
            prompt_len=len(req.origin_input_ids),
            max_new=req.sampling_params.max_new_tokens,
            output_ids=tuple(req.output_ids),
            kv_committed_len=kv.kv_committed_len,
            kv_allocated_len=kv.kv_allocated_len,
            cache_protected_len=kv.cache_protected_len,
            req_pool_idx=kv.req_pool_idx,
            slots=slots,
            finished_reason=finished,
            finished_len=req.finished_len,
            to_finish=req.to_finish is not None and not gone,
            is_retracted=req.is_retracted,
            retraction_count=req.retraction_count,
            decode_batch_idx=req.decode_batch_idx,
            extend_batch_idx=req.extend_batch_idx,
            inflight_middle_chunks=req.inflight_middle_chunks,
            spec_verify_ct=req.spec_verify_ct,
            spec_num_correct_drafts=req.spec_num_correct_drafts,
            spec_correct_drafts_histogram=tuple(req.spec_correct_drafts_histogram),
            holds_lock=req.lock is not None,
            grammar_accepted=accepted,
            grammar_terminated=accepted is not None and req.grammar.is_terminated(),
        )
        self._reqs[rid] = (key, view)
        return view

    def _pool_view(self) -> PoolView:
        rig, config = self._driver.rig, self._driver.config
        allocator, tree = rig.allocator, rig.tree
        free_pages = tuple(allocator.get_all_free_pages().tolist())
        key = (
            free_pages, tuple(rig.rows.free_slots), rig.ticks.count, allocator.available_size(), tree.evictable_size(),
            tree.protected_size(),
        )  # fmt: skip
        if self._pool is not None and self._pool[0] == key:
            return self._pool[1]
        view = PoolView(
            page_size=config.page_size,
            num_pages=config.num_pages,
            max_reqs=config.max_reqs,
            row_width=self._driver.rig.rows.req_to_token.shape[1],
            free_pages=free_pages,
            free_rows=key[1],
            available=key[3],
            evictable=key[4],
            protected=key[5],
            cached=self._cached_paths(),
        )
        self._pool = (key, view)
        return view

    def _cached_paths(self) -> tuple[CachedPath, ...] | None:
        """Root-to-leaf paths of the tree; walked again only when the tree's clock has moved."""
        rig = self._driver.rig
        root = getattr(rig.tree, "root_node", None)
        if root is None:
            return None
        if self._cached[0] == rig.ticks.count:
            return self._cached[1]
        bigram, paths = rig.tree.is_eagle, []
        stack = [(child, (), ()) for child in reversed(root.children.values())]
        while stack:
            node, tokens, slots = stack.pop()
            raw = tuple(node.key.raw_token_ids())
            # Neighbouring bigram keys share one boundary token.
            tokens = (tokens[:-1] if bigram else tokens) + raw
            slots = slots + tuple(node.value.tolist())
            if node.children:
                stack.extend((child, tokens, slots) for child in reversed(node.children.values()))
            else:
                paths.append(CachedPath(tokens=tokens, slots=slots))
        self._cached = (rig.ticks.count, tuple(paths))
        return self._cached[1]

    def _batches(self) -> tuple[BatchView, ...]:
        driver, scheduler = self._driver, self._driver.scheduler
        named = (("running", scheduler.running_batch), ("prepared", driver.prepared), ("last", scheduler.last_batch))
        views = tuple(_batch_view(name, batch) for name, batch in named if batch is not None and batch.reqs)
        if views != self._last_batches:
            self._last_batches = views
        return self._last_batches

    def _launches(self) -> tuple[LaunchView, ...]:
        driver = self._driver
        opened, sampled = driver.log.opened_now, driver.log.sampled_now
        views = [
            launch.view(settled=settled, entered=launch.number == opened, left=launch.number in (opened, sampled))
            for settled, launches in ((True, driver.settled_now), (False, driver.queue))
            for launch in launches
        ]
        if tuple(views) != self._last_launches:
            self._last_launches = tuple(views)
        return self._last_launches

    # ------------------------------------------------------------------ relay and device
    def _relay_view(self, reqs: dict[str, ReqView]) -> RelayView:
        future_map = self._driver.scheduler.future_map
        lens, tokens = future_map.new_seq_lens_buf.tolist(), future_map.output_tokens_buf.tolist()
        topk = None if future_map.topk_index_buf is None else future_map.topk_index_buf.tolist()
        is_tree = self._driver.config.topk > 1
        hidden = None if future_map.hidden_states_buf is None else future_map.hidden_states_buf[:, 0].tolist()
        held = tuple((rid, req.req_pool_idx) for rid, req in reqs.items() if req.req_pool_idx is not None)
        key = (held, tuple((lens[row], tokens[row], topk and topk[row], hidden and hidden[row]) for _, row in held))
        if self._relay is not None and self._relay[0] == key:
            return self._relay[1]
        rows = {
            rid: RelayRow(
                row=row,
                new_seq_len=_known(lens[row]),
                output_token=_known(tokens[row]),
                topk_index=None if topk is None else topk[row][0],
                hidden=None if hidden is None else hidden[row],
                topk_seeds=tuple(topk[row]) if topk is not None and is_tree else None,
            )
            for rid, row in held
        }
        view = RelayView(rows=rows, quiet=True)
        self._relay = (key, view)
        return view

    def _device_view(self, reqs: dict[str, ReqView]) -> DeviceView:
        model = self._driver.rig.model
        if self._cells is None or self._cells[0] != model.writes:
            draft = None if model.draft_v1 is None else tuple(model.draft_v1.tolist())
            self._cells = (model.writes, (tuple(model.target_v1.tolist()), tuple(model.target_v2.tolist()), draft))
        rows = {rid: req.slots for rid, req in reqs.items() if req.req_pool_idx is not None}
        key = (model.writes, rows)
        if self._device is not None and self._device[0] == key:
            return self._device[1]
        v1, v2, draft = self._cells[1]
        view = DeviceView(target_v1=v1, target_v2=v2, draft_v1=draft, rows=rows, pending=0)
        self._device = (key, view)
        return view


def _batch_view(name: str, batch: Any) -> BatchView:
    future = getattr(batch.spec_info, "future_indices", None)
    return BatchView(
        name=name,
        rids=tuple(event_rid(req.rid) for req in batch.reqs),
        forward_mode="" if batch.forward_mode is None else batch.forward_mode.name,
        req_pool_indices=_values(batch.req_pool_indices),
        seq_lens=_values(batch.seq_lens),
        seq_lens_cpu=_values(batch.seq_lens_cpu),
        future_indices=_values(future),
        penalized=None if batch.sampling_info is None else counted(batch.sampling_info),
    )


def _values(tensor: Any) -> tuple[int, ...] | None:
    return None if tensor is None else tuple(tensor.tolist())


def _known(value: int) -> int | None:
    """A relay cell; negative means poisoned or never written."""
    return value if value >= 0 else None
