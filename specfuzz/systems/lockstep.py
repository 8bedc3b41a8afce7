"""Runs two systems side by side and compares them after every event: one is right where the other has a bug.

Compared are values that both must agree on whatever their memory layout: the host ledger by request, counts of rows and
slots by owner, queues and orders, modes, receipts; relay rows and batch lengths only where the device side of both is
drained, since before that they may lag differently. Ids of rows, slots and pages are never compared. A value that one
side can't show is counted under `uncompared`, never as equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from specfuzz.core.capability import OBSERVATIONS, Capability
from specfuzz.core.clock import Clock, Owner, Point
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.notation import format_event
from specfuzz.core.port import System
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import LaunchView, Snapshot
from specfuzz.core.verdict import Violation
from specfuzz.errors import EngineFault
from specfuzz.systems.lockstep_exclusions import EXCLUSIONS, Exclusion

#: A cell of a snapshot: the field as it is counted, and where (a rid, a batch, a launch; "" for the whole).
Cell = tuple[str, str]


class _Missing:
    """Stands for a value that a system can't show."""

    def __repr__(self) -> str:
        return "not shown"


MISSING = _Missing()

REQ_FIELDS = (
    "output_ids", "kv_committed_len", "kv_allocated_len", "cache_protected_len", "holds_kv", "finished_reason",
    "finished_len", "to_finish", "is_retracted", "retraction_count", "decode_batch_idx", "extend_batch_idx",
    "spec_verify_ct", "spec_num_correct_drafts", "spec_correct_drafts_histogram", "inflight_middle_chunks",
    "holds_lock", "prompt_len", "max_new", "grammar_accepted", "grammar_terminated",
)  # fmt: skip
RECEIPT_FIELDS = (
    "launch", "mode", "rows", "admitted", "retracted", "dropped", "skipped", "settled", "emitted", "finished",
    "evicted",
)  # fmt: skip
POOL_FIELDS = ("page_size", "num_pages", "max_reqs", "available", "evictable", "protected")
RELAY_FIELDS = ("new_seq_len", "output_token", "topk_index", "hidden")
#: What a worker saw and decided, row by row: everything but the slots.
ENTRY_FIELDS = ("seq_lens", "prefix_lens", "input_tokens", "bonus", "topk_index", "topk_seeds", "hidden")
EXIT_FIELDS = ("accept_lens", "new_seq_lens", "next_tokens", "published", "accept_index")

#: Who is asked first when a field differs; a field that isn't listed is the scheduler's.
OWNERS: dict[str, Owner] = {
    **{f"req.{name}": Owner.RESULT_PROCESSOR for name in (
        "output_ids", "kv_committed_len", "finished_reason", "finished_len", "spec_verify_ct",
        "spec_num_correct_drafts", "spec_correct_drafts_histogram")},
    **{f"receipt.{name}": Owner.RESULT_PROCESSOR for name in ("settled", "emitted", "finished")},
    "metrics": Owner.RESULT_PROCESSOR,
    "req.grammar_accepted": Owner.GRAMMAR,
    "req.grammar_terminated": Owner.GRAMMAR,
    "launch.grammar_advanced": Owner.GRAMMAR,
    "req.kv_allocated_len": Owner.KV_ALLOCATOR,
    "req.slots": Owner.KV_ALLOCATOR,
    "pool.free_pages": Owner.KV_ALLOCATOR,
    "pool.available": Owner.KV_ALLOCATOR,
    "req.holds_kv": Owner.REQ_TO_TOKEN_POOL,
    "pool.free_rows": Owner.REQ_TO_TOKEN_POOL,
    "req.cache_protected_len": Owner.RADIX_CACHE,
    "req.holds_lock": Owner.RADIX_CACHE,
    "pool.evictable": Owner.RADIX_CACHE,
    "pool.protected": Owner.RADIX_CACHE,
    "pool.cached_slots": Owner.RADIX_CACHE,
    "receipt.evicted": Owner.RADIX_CACHE,
    **{f"relay.{name}": Owner.FUTURE_MAP for name in ("rids", *RELAY_FIELDS, "topk_seeds")},
    "batch.forward_mode": Owner.ISOLATION,
    "batch.penalized": Owner.SAMPLER,
    "launch.penalized": Owner.ISOLATION,
    "batch.seq_lens": Owner.SPEC_WORKER,
    **{f"launch.{name}": Owner.FUTURE_MAP for name in ENTRY_FIELDS},
    **{f"launch.{name}": Owner.SPEC_WORKER for name in EXIT_FIELDS},
}  # fmt: skip


def host_cells(snapshot: Snapshot, receipt: Receipt) -> dict[Cell, Any]:
    """What is compared after every event."""
    cells: dict[Cell, Any] = {("receipt.refused", ""): receipt.refused is not None}
    for name in RECEIPT_FIELDS:
        cells["receipt." + name, ""] = getattr(receipt, name)
    cells["reqs", ""] = tuple(snapshot.reqs)
    for rid, req in snapshot.reqs.items():
        for name in REQ_FIELDS:
            cells["req." + name, rid] = getattr(req, name)
        cells["req.slots", rid] = len(req.slots)
    pool = snapshot.pool
    for name in POOL_FIELDS:
        cells["pool." + name, ""] = getattr(pool, name)
    cells["pool.free_pages", ""] = len(pool.free_pages)
    cells["pool.free_rows", ""] = len(pool.free_rows)
    cached = pool.cached
    cells["pool.cached_slots", ""] = MISSING if cached is None else len({s for path in cached for s in path.slots})
    cells["metrics", ""] = MISSING if snapshot.metrics is None else snapshot.metrics
    cells["queue.depth", ""] = len(snapshot.queue)
    cells["waiting", ""] = snapshot.waiting
    cells["running", ""] = snapshot.running
    cells["chunked", ""] = MISSING if snapshot.chunked is None else snapshot.chunked
    cells["prepared", ""] = snapshot.prepared
    for batch in snapshot.batches:
        cells["batch.forward_mode", batch.name] = batch.forward_mode
        cells["batch.rids", batch.name] = batch.rids
        cells["batch.penalized", batch.name] = MISSING if batch.penalized is None else batch.penalized
    for launch in snapshot.launches:
        cells["launch.mode", str(launch.number)] = launch.mode
        cells["launch.rids", str(launch.number)] = launch.rids
        cells["launch.dead", str(launch.number)] = launch.dead
        cells["launch.grammar_advanced", str(launch.number)] = launch.grammar_advanced
        cells["launch.penalized", str(launch.number)] = MISSING if launch.penalized is None else launch.penalized
        cells.update(_worker_cells(launch))
    return cells


def _worker_cells(launch: LaunchView) -> dict[Cell, Any]:
    """What the worker has seen and decided by now; a row that was dead at its launch has no content to speak of."""
    cells: dict[Cell, Any] = {}
    for seen, names in ((launch.entry, ENTRY_FIELDS), (launch.exit, EXIT_FIELDS)):
        for name in names if seen is not None else ():
            for rid, value in zip(launch.rids, getattr(seen, name) or (), strict=False):
                if rid not in launch.dead:
                    cells[f"launch.{name}", f"{launch.number} {rid}"] = value
    return cells


def drained_cells(snapshot: Snapshot) -> dict[Cell, Any]:
    """What is compared only where no device work is pending on either side."""
    cells: dict[Cell, Any] = {}
    for batch in snapshot.batches:
        cells["batch.seq_lens", batch.name] = MISSING if batch.seq_lens is None else batch.seq_lens
    if snapshot.relay is not None:
        cells["relay.rids", ""] = tuple(sorted(snapshot.relay.rows))
        for rid, row in snapshot.relay.rows.items():
            for name in RELAY_FIELDS:
                value = getattr(row, name)
                # Poisoned, consumed or not shown: which of them is the engine's own affair.
                cells["relay." + name, rid] = MISSING if value is None else value
            if row.topk_seeds is not None:  # of a chain there are none to speak of
                cells["relay.topk_seeds", rid] = row.topk_seeds
    return cells


class LockstepSystem:
    """Two systems as one: `a` answers, `b` is compared with it. Satisfies `System` and `Comparing`.

    compared, uncompared, excluded: cells by field since it was opened. uncompared: only one side, or neither, shows it.
    """

    def __init__(self, a: System, b: System, exclusions: Iterable[Exclusion] = EXCLUSIONS) -> None:
        """a: the system that oracles see; b: the one that it is compared with."""
        self.a, self.b = a, b
        self.name = f"lockstep:{a.name},{b.name}"
        self.version = f"{a.version},{b.version}"
        self.compared: Counter[str] = Counter()
        self.uncompared: Counter[str] = Counter()
        self.excluded: Counter[str] = Counter()
        self._exclusions = tuple(entry for entry in exclusions if entry.applies(a.name, b.name))
        self._label_a, self._label_b = (a.name, b.name) if a.name != b.name else (f"{a.name} (1)", f"{b.name} (2)")
        self._config = EngineConfig()
        self._state: Snapshot | None = None
        self._found: list[tuple[Event, Cell, Any, Any]] = []

    def capabilities(self, config: EngineConfig) -> Capability:
        """Abilities that both engines have; what can be observed is what `a` shows."""
        seen = OBSERVATIONS | Capability.LAZY_DEVICE
        ours, theirs = self.a.capabilities(config), self.b.capabilities(config)
        return (ours & seen) | (ours & theirs & ~seen)

    def reset(self, config: EngineConfig) -> None:
        """Start both afresh."""
        self._config, self._state, self._found = config, None, []
        self._both(lambda system: system.reset(config))

    def apply(self, event: Event) -> Receipt:
        """Apply the event to both and compare; raises EngineFault saying which one failed."""
        ours, theirs = self._both(lambda system: (system.apply(event), system.snapshot()))
        self._state = ours[1]
        self._compare(event, ours, theirs)
        receipt: Receipt = ours[0]
        return receipt

    def snapshot(self) -> Snapshot:
        """The snapshot of `a`."""
        if self._state is None:
            self._state = self.a.snapshot()
        return self._state

    def close(self) -> None:
        """Close both, the second one even if the first fails."""
        try:
            self.a.close()
        finally:
            self.b.close()

    def take_differences(self, event_index: int) -> list[Violation]:
        """One violation of `lockstep` per field that differed at the last event."""
        found, self._found = self._found, []
        return [self._violation(event_index, *difference) for difference in found]

    def _both(self, do: Any) -> tuple[Any, Any]:
        """Do the same to both. A fault in one doesn't keep the other from trying, so that the message can say who."""
        results: list[Any] = []
        faults: list[tuple[str, EngineFault]] = []
        for label, system in ((self._label_a, self.a), (self._label_b, self.b)):
            try:
                results.append(do(system))
            except EngineFault as fault:
                faults.append((label, fault))
        if not faults:
            return results[0], results[1]
        who = f"only `{faults[0][0]}` failed" if len(faults) == 1 else "both systems failed"
        what = "; ".join(f"`{label}`: {fault}" for label, fault in faults)
        raise EngineFault(f"{who}: {what}", kind=faults[0][1].kind) from faults[0][1]

    def _compare(self, event: Event, ours: tuple[Receipt, Snapshot], theirs: tuple[Receipt, Snapshot]) -> None:
        a, b = host_cells(ours[1], ours[0]), host_cells(theirs[1], theirs[0])
        if _is_drained(ours[1]) and _is_drained(theirs[1]):
            a.update(drained_cells(ours[1]))
            b.update(drained_cells(theirs[1]))
        excluded = {entry.field for entry in self._exclusions if entry.when(self._config, event)}
        differing: set[str] = set()
        for cell in a | b:
            field = cell[0]
            if field in excluded:
                self.excluded[field] += 1
                continue
            left, right = a.get(cell, MISSING), b.get(cell, MISSING)
            if left is MISSING or right is MISSING:
                self.uncompared[field] += 1
                continue
            self.compared[field] += 1
            if left != right and field not in differing:
                differing.add(field)
                self._found.append((event, cell, left, right))

    def _violation(self, event_index: int, event: Event, cell: Cell, left: Any, right: Any) -> Violation:
        field, where = cell
        name = f"{field}[{where}]" if where else field
        return Violation(
            oracle="lockstep", owner=str(OWNERS.get(field, Owner.SCHEDULER)), clock=str(_clock_of(field)),
            phase=str(Point.AFTER_EVENT), formula=f"a.{name} == b.{name}", values=f"{left!r} == {right!r}",
            fact=f"{self._label_a}: {name} is {left!r} after `{format_event(event)}`",
            counterfact=f"{self._label_b}: {name} is {right!r}",
            source="two systems that run the same events agree on everything but memory layout",
            event_index=event_index, rid=where if field.startswith(("req.", "relay.")) and where else None,
        )  # fmt: skip


def _is_drained(snapshot: Snapshot) -> bool:
    return snapshot.relay is not None and snapshot.relay.quiet


def _clock_of(field: str) -> Clock:
    if field.startswith("relay."):
        return Clock.RELAY
    worker = field.removeprefix("launch.") in (*ENTRY_FIELDS, *EXIT_FIELDS)
    return Clock.DEVICE if field == "batch.seq_lens" or worker else Clock.HOST


def cell_table(system: LockstepSystem) -> Mapping[str, tuple[int, int, int]]:
    """(compared, uncompared, excluded) by field, for reports."""
    names = sorted({*system.compared, *system.uncompared, *system.excluded})
    return {name: (system.compared[name], system.uncompared[name], system.excluded[name]) for name in names}
