"""Clauses about snapshots: plain data that costs nothing to take, synchronises nothing and stays what it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from specfuzz.conformance.clauses import Answer, Evidence, broken, clause, difference, holds, place, unjudged
from specfuzz.conformance.runs import again
from specfuzz.core import snapshot as records
from specfuzz.core.capability import Capability
from specfuzz.core.snapshot import Snapshot

_PLAIN = frozenset({int, str, bool, type(None)})
#: What a snapshot says about its event alone: taken by the first look, gone by the second.
_OF_THE_EVENT = ("writes", "races", "launches", "on_idle")


@clause("looking-changes-nothing")
def looking_changes_nothing(evidence: Evidence) -> Answer:
    """A second look shows the same state, and a run that nobody looks at goes the same way."""
    looks = 0
    for run in evidence.runs:
        for index, moment in enumerate(run.moments):
            for look in moment.looks[1:]:
                looks += 1
                changed = _changed(moment.after, look)
                if changed:
                    return broken(f"{place(run, index)}: a second look shows another {', '.join(changed)}")
    twice = evidence.runs[0]
    once = evidence.play(twice.config, again(twice.tried))
    changed_run = difference(twice, once)
    if changed_run:
        return broken(f"with one look per event instead of two, {changed_run}")
    return holds(f"{looks} second looks; {len(once.events)} events with one look each went the same way")


def _changed(one: Snapshot, other: Snapshot) -> list[str]:
    names = [f.name for f in fields(Snapshot) if f.name not in _OF_THE_EVENT]
    changed = [name for name in names if getattr(one, name) != getattr(other, name)]
    return changed if _unsettled(one) == _unsettled(other) else [*changed, "launches"]


def _unsettled(snapshot: Snapshot) -> list[records.LaunchView]:
    """Launches that must still be there, without the marks that say what the event brought."""
    return [replace(view, entry_now=False, exit_now=False) for view in snapshot.launches if not view.settled]


@clause("a-look-never-synchronises")
def a_look_never_synchronises(evidence: Evidence) -> Answer:
    """Pending device work is as pending after a look as before it."""
    seen = Capability.LAZY_DEVICE | Capability.DEVICE_VIEW
    runs = [run for run in evidence.claiming(seen) if run.moments]
    if not runs:
        return unjudged("no configuration claims LAZY_DEVICE and DEVICE_VIEW: device work is never seen pending")
    looks = 0
    for run in runs:
        for index, moment in enumerate(run.moments):
            pending = {look.device.pending for look in moment.looks if look.device is not None}
            looks += len(moment.looks)
            if len(pending) > 1:
                return broken(f"{place(run, index)}: pending operations by look: {sorted(pending, reverse=True)}")
    busy = max(runs, key=lambda run: sum(moment.receipt.executed for moment in run.moments))
    blind = evidence.play(busy.config, again(busy.tried), looks=0)
    for index, (watched, unwatched) in enumerate(zip(busy.receipts, blind.receipts, strict=False)):
        if watched.executed != unwatched.executed:
            return broken(
                f"{place(busy, index)}: {watched.executed} device operations ran while somebody looked after each "
                f"event, {unwatched.executed} while nobody did"
            )
    return holds(f"{looks} looks; {len(blind.events)} events ran the same operations with and without looks")


@clause("snapshots-are-plain-data")
def snapshots_are_plain_data(evidence: Evidence) -> Answer:
    """Snapshots hold ints, texts, booleans, tuples and core's records: no tensor, no reference into an engine."""
    known: dict[int, Any] = {}  # records are shared between snapshots, and each is looked at once
    for run in evidence.runs:
        for index, moment in enumerate(run.moments):
            foreign = _foreign(moment.after, "snapshot", known)
            if foreign:
                return broken(f"{place(run, index)}: {foreign}")
    return holds(f"{len(known)} records and tuples in {sum(len(run.moments) for run in evidence.runs)} snapshots")


def _foreign(value: Any, where: str, known: dict[int, Any]) -> str | None:
    """The first thing inside that is no plain data, or None."""
    kind = type(value)
    if kind in _PLAIN:
        return None
    if id(value) in known:
        return None
    if kind is tuple:
        if _PLAIN.issuperset(map(type, value)):
            known[id(value)] = value
            return None
        inner = ((f"{where}[{at}]", item) for at, item in enumerate(value))
    elif isinstance(value, Mapping):
        if any(type(key) is not str for key in value):
            return f"{where} has a key that is no text"
        inner = ((f"{where}[{key}]", item) for key, item in value.items())
    elif is_dataclass(value) and getattr(records, kind.__name__, None) is kind:
        inner = ((f"{where}.{f.name}", getattr(value, f.name)) for f in fields(value))
    else:
        return f"{where} is a {kind.__module__}.{kind.__qualname__}"
    found = next((text for name, item in inner if (text := _foreign(item, name, known))), None)
    known[id(value)] = value  # kept, so that its id stays its own
    return found


@clause("snapshots-never-change-later")
def snapshots_never_change_later(evidence: Evidence) -> Answer:
    """A snapshot says at the end of the run what it said when it was taken."""
    for run in evidence.runs:
        for index, moment in enumerate(run.moments):
            if hash(repr(moment.after)) != moment.told:
                return broken(f"{place(run, index)}: the snapshot was changed by a later event")
    return holds(f"{sum(len(run.moments) for run in evidence.runs)} snapshots read again when their run had ended")


CLAUSES = (
    looking_changes_nothing, a_look_never_synchronises, snapshots_are_plain_data, snapshots_never_change_later,
)  # fmt: skip
