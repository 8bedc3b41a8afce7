"""Clauses about an algorithm of the reference: footprint, accepted runs, publish, hands off the ledger."""

from __future__ import annotations

from collections.abc import Mapping

from specfuzz.conformance.clauses import Answer, Evidence, broken, clause, holds, place, unjudged
from specfuzz.conformance.judging import kept_by
from specfuzz.conformance.runs import Moment
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Advance, Publish, Verify
from specfuzz.core.snapshot import Snapshot

_LAUNCHES = Capability.LAUNCH_VIEW
#: KV slots by position, by rid.
_Slots = dict[str, tuple[int, ...]]


@clause("runs-are-in-range")
def runs_are_in_range(evidence: Evidence) -> Answer:
    """A verify accepts between 1 and max_accept tokens per row, exactly those that the verify asked for."""
    return kept_by(evidence, "accept-in-range", "right-draft-is-accepted")


@clause("frontier-steps-by-the-run")
def frontier_steps_by_the_run(evidence: Evidence) -> Answer:
    """A speculative verify decides the frontier seq_lens + accept_lens, and publishes exactly that."""
    if not any(config.speculative for config in evidence.configs):
        return unjudged("nothing is verified speculatively")  # the rules below hold of a plain forward, too
    return kept_by(evidence, "frontier-steps-by-accept", "publish-equals-result")


@clause("publishes-once-per-forward")
def publishes_once_per_forward(evidence: Evidence) -> Answer:
    """Under overlap every forward publishes exactly once; without, nobody publishes."""
    return kept_by(evidence, "publishes-once", also_without=Capability.SPECULATIVE)


@clause("windows-are-reserved")
def windows_are_reserved(evidence: Evidence) -> Answer:
    """The window of a forward lies in what its row has allocated, and is no longer than a decode may be."""
    for run in evidence.claiming(_LAUNCHES):
        most = run.config.alloc_len_per_decode
        for index, moment in enumerate(run.moments):
            for view in moment.after.launches:
                longest = max(map(len, view.entry.window), default=0) if view.entry is not None else 0
                if view.mode == "DECODE" and longest > most:
                    return broken(f"{place(run, index)}: a row writes {longest} slots, a decode may write {most}")
    return kept_by(evidence, "window-inside-the-reserve", "window-follows-the-row")


@clause("writes-stay-in-the-footprint")
def writes_stay_in_the_footprint(evidence: Evidence) -> Answer:
    """Only KV cells change that lie in the window of a forward in flight, or in the decode length behind its start."""
    cells = 0
    for run in evidence.claiming(_LAUNCHES | Capability.CONTENT_VIEW | Capability.DEVICE_VIEW):
        held: _Slots = {}
        slots: dict[int, _Slots] = {}
        for index, moment in enumerate(run.moments):
            # As last held: a row may be gone when it is launched, and when its forward runs.
            held.update({rid: req.slots for rid, req in moment.before.reqs.items() if req.slots})
            if moment.receipt.launch is not None:
                slots[moment.receipt.launch] = {rid: held.get(rid, ()) for rid in moment.receipt.rows}
            changed = _changed_cells(moment.before, moment.after)
            strange = changed and changed - _footprint(moment, slots, run.config)
            if strange:
                return broken(f"{place(run, index)}: cells {sorted(strange)[:8]} are in nobody's footprint")
            cells += len(changed)
    return holds(f"{cells} cells") if cells else unjudged("no KV cell can be seen changing")


def _footprint(moment: Moment, slots: Mapping[int, _Slots], config: EngineConfig) -> set[int]:
    """Slots that the listed forwards may write, and the padding page, which takes what belongs nowhere.

    slots: by launch number, those of its rows.
    """
    allowed = set(range(config.page_size))
    for view in (*moment.before.launches, *moment.after.launches):
        if view.entry is None:
            continue
        reach = config.alloc_len_per_decode if view.mode == "DECODE" else 0
        for rid, start, window in zip(view.rids, view.entry.prefix_lens, view.entry.window, strict=True):
            allowed.update(window)
            allowed.update(slots.get(view.number, {}).get(rid, ())[start : start + reach])
    return allowed


def _changed_cells(before: Snapshot, after: Snapshot) -> set[int]:
    """Slots whose target or draft cell differs."""
    one, other = before.device, after.device
    if one is None or other is None:
        return set()
    changed: set[int] = set()
    for old, new in ((one.target_v1, other.target_v1), (one.draft_v1, other.draft_v1)):
        if old is not None and new is not None and old is not new:
            changed.update(at for at, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1])
    return changed


@clause("keeps-off-the-ledger")
def keeps_off_the_ledger(evidence: Evidence) -> Answer:
    """Launching a decode and letting the device run writes no owned field of any request."""
    for run in evidence.claiming(Capability.WRITE_RECORDS):
        for index, moment in enumerate(run.moments):
            if not isinstance(moment.event, Verify | Publish | Advance):
                continue
            for write in moment.after.writes or ():  # whoever it is: here not even an owner has anything to write
                return broken(
                    f"{place(run, index)}: `{write.writer}` writes `{write.field}` of {write.rid}, "
                    f"{write.old} -> {write.new}"
                )
    return kept_by(evidence, "worker-keeps-off-the-ledger")


@clause("flags-are-complete")
def flags_are_complete(evidence: Evidence) -> Answer:
    """What the algorithm does without claiming it is nothing: no draft KV, no draft extras, no run beyond one token."""
    quiet = 0
    for run in evidence.runs:
        unclaimed = _UNCLAIMED & ~run.capabilities
        if not unclaimed:
            continue
        for index, moment in enumerate(run.moments):
            shown = _shown(moment, run.config) & unclaimed
            if shown:
                return broken(f"{place(run, index)}: {shown.name} shows and is not claimed")
            quiet += 1
    return holds(f"{quiet} events") if quiet else unjudged("the algorithm claims everything that it could do")


_UNCLAIMED = Capability.SPECULATIVE | Capability.DRAFT_KV | Capability.DRAFT_EXTRAS


def _shown(moment: Moment, config: EngineConfig) -> Capability:
    found = Capability.NONE
    device, relay = moment.after.device, moment.after.relay
    if device is not None and device.draft_v1 is not None:
        found |= Capability.DRAFT_KV
    if relay is not None and any(row.topk_index is not None or row.hidden is not None for row in relay.rows.values()):
        found |= Capability.DRAFT_EXTRAS
    if any(len(set(view.exit.accept_lens) - {1}) for view in moment.after.launches if view.exit is not None):
        found |= Capability.SPECULATIVE
    return found


CLAUSES = (
    runs_are_in_range, frontier_steps_by_the_run, publishes_once_per_forward, windows_are_reserved,
    writes_stay_in_the_footprint, keeps_off_the_ledger, flags_are_complete,
)  # fmt: skip
