"""Records each forward at the worker seam: what was bound before it, what the worker saw, what came out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch

from specfuzz.core.snapshot import LaunchView, WorkerEntry, WorkerExit
from specfuzz.systems.sglang.harness import Rig
from specfuzz.systems.sglang.penalties import Penalties, counted


@dataclass(slots=True, eq=False)
class Launch:
    """One forward from its launch until it is settled. batch, result: what the result queue holds of it."""

    number: int
    mode: str
    rids: tuple[str, ...]
    rows: tuple[int, ...]
    committed: tuple[int, ...]
    allocated: tuple[int, ...]
    dead: tuple[str, ...]
    unsettled_before: int
    sampling_info: Any
    bound: dict[str, Any] = field(default_factory=dict)
    held: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)  # name -> (tensor, value at entry)
    rebound: tuple[str, ...] | None = None
    sampling_copied: bool | None = None
    mode_after: str | None = None
    entry: WorkerEntry | None = None
    exit: WorkerExit | None = None
    penalized: Penalties | None = None
    publishes: int = 0
    published: tuple[int, ...] | None = None
    batch: Any = None
    result: Any = None

    def changed(self) -> tuple[str, ...]:
        """Tensors bound at worker entry whose values differ now: in-place writes through the isolation."""
        return tuple(name for name, (tensor, value) in self.held.items() if not torch.equal(tensor, value))

    def view(self, *, settled: bool, entered: bool, left: bool) -> LaunchView:
        """This launch as snapshots show it. entered, left: its entry or exit was made by the snapshot's own event."""
        return LaunchView(
            number=self.number,
            mode=self.mode,
            rids=self.rids,
            req_pool_indices=self.rows,
            committed=self.committed,
            allocated=self.allocated,
            dead=self.dead,
            unsettled_before=self.unsettled_before,
            rebound=self.rebound,
            sampling_copied=self.sampling_copied,
            mode_after=self.mode_after,
            held_changed=self.changed(),
            entry=self.entry,
            exit=self.exit,
            publishes=self.publishes,
            published=self.publishes > 0,
            settled=settled,
            entry_now=entered and self.entry is not None,
            exit_now=left and self.exit is not None,
            penalized=self.penalized,
            grammar_advanced=not settled and self.result.grammar_advanced,
        )


class LaunchLog:
    """Numbers the launches of one run and fills in their records while `run_batch` runs."""

    def __init__(self, rig: Rig) -> None:
        """Hooks the worker's entry and the relay's publish of this rig."""
        self.rig = rig
        self.count = 0
        self.opened_now: int | None = None
        self.sampled_now: int | None = None  # the one whose sampling was put off until this event
        self._open: Launch | None = None
        self._fields = [f.name for f in fields(rig.engine.ScheduleBatch)]
        rig.worker.observer = self._entered
        rig.scheduler.future_map.publish = self._publishing(rig.scheduler.future_map)

    def begin(self) -> None:
        """A new event starts."""
        self.opened_now = self.sampled_now = None

    def open(self, batch: Any, mode: str, rids: list[str], unsettled: int) -> Launch:
        """A forward of `batch` is about to be launched."""
        self.count += 1
        self.opened_now = self.count
        self._open = Launch(
            number=self.count,
            mode=mode,
            rids=tuple(rids),
            rows=tuple(batch.req_pool_indices.tolist()),
            committed=tuple(req.kv.kv_committed_len for req in batch.reqs),
            allocated=tuple(req.kv.kv_allocated_len for req in batch.reqs),
            dead=tuple(rid for rid, req in zip(rids, batch.reqs, strict=True) if req.finished() or req.is_retracted),
            unsettled_before=unsettled,
            sampling_info=batch.sampling_info,
        )
        return self._open

    def close(self, launch: Launch, batch: Any) -> None:
        """`run_batch` has returned: compare the batch with what was bound before isolation."""
        worker = self.rig.worker
        launch.entry, launch.exit = worker.entry, worker.exit
        if launch.exit is not None and launch.published is not None:
            launch.exit = replace(launch.exit, published=launch.published)
        launch.rebound = tuple(name for name, value in launch.bound.items() if _differs(getattr(batch, name), value))
        launch.mode_after = batch.forward_mode.name
        self._open = None

    def sampled(self, launch: Launch) -> None:
        """A launch that left its sampling for later has sampled."""
        launch.exit = self.rig.worker.exit
        self.sampled_now = launch.number

    def _entered(self, batch: Any) -> None:
        """The worker's first sight of the batch, before it rebinds anything."""
        launch = self._open
        if launch is None:
            return
        launch.bound = {name: getattr(batch, name) for name in self._fields}
        launch.bound["sampling_info"] = launch.sampling_info
        launch.penalized = counted(batch.sampling_info)
        launch.sampling_copied = batch.sampling_info is not launch.sampling_info
        launch.held = {
            name: (value, value.clone()) for name, value in launch.bound.items() if isinstance(value, torch.Tensor)
        }

    def _publishing(self, future_map: Any) -> Callable[..., None]:
        def publish(future_indices: torch.Tensor, new_seq_lens: torch.Tensor, *rest: Any, **named: Any) -> None:
            type(future_map).publish(future_map, future_indices, new_seq_lens, *rest, **named)
            if self._open is not None:
                self._open.publishes += 1
                self._open.published = tuple(future_map.new_seq_lens_buf[future_indices].tolist())

        return publish


def _differs(now: Any, before: Any) -> bool:
    """Whether a binding changed; plain numbers count by value."""
    return now is not before and not (isinstance(now, int) and isinstance(before, int) and now == before)
