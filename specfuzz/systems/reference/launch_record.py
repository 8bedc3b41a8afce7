"""What is known about one forward of the reference, filled in by whoever watches the worker seam."""

from __future__ import annotations

from typing import Any
from weakref import ref

from specfuzz.core.snapshot import LaunchView, WorkerEntry, WorkerExit
from specfuzz.gpu.device import Buffer, Event
from specfuzz.gpu.memory import Watch
from specfuzz.reference.sampling import Penalties
from specfuzz.reference.schedule_batch import ScheduleBatch


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
