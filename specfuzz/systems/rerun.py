"""Runs one system twice, side by side: every receipt and every state must be the same to the bit.

A difference is the violation `rerun`: the engine, the adapter or the device has a source of randomness outside of the
trace (an address, a clock, the order of a set), and then no trace of it can be trusted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.notation import format_event
from specfuzz.core.port import System
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.core.verdict import Violation
from specfuzz.errors import EngineFault

#: Snapshot field by clock; what isn't listed is the host's.
CLOCKS = {"relay": Clock.RELAY, "device": Clock.DEVICE, "launches": Clock.DEVICE}


class RerunSystem:
    """Two openings of one system as one. Satisfies `System` and `Comparing`; the first one answers.

    compared: receipts, and snapshot fields by name, since it was opened.
    """

    def __init__(self, first: System, second: System) -> None:
        """first, second: the same system, opened twice."""
        self.first, self.second = first, second
        self.name, self.version = f"rerun:{first.name}", first.version
        self.compared: Counter[str] = Counter()
        self._state: Snapshot | None = None
        self._found: list[tuple[Event, str, Any, Any]] = []

    def capabilities(self, config: EngineConfig) -> Capability:
        """Those of the system."""
        return self.first.capabilities(config)

    def reset(self, config: EngineConfig) -> None:
        """Start both afresh."""
        self._state, self._found = None, []
        self.first.reset(config)
        self.second.reset(config)

    def apply(self, event: Event) -> Receipt:
        """Apply the event to both and compare; a fault in one alone says so."""
        one, one_fault = _try(self.first, event)
        two, two_fault = _try(self.second, event)
        if one_fault is not None and two_fault is not None:
            raise one_fault
        if one_fault is not None or two_fault is not None:
            fault, which = (one_fault, "first") if one_fault is not None else (two_fault, "second")
            assert fault is not None
            raise EngineFault(f"only the {which} of two runs of `{self.first.name}` failed: {fault}", kind=fault.kind)
        assert one is not None and two is not None
        self._state = self.first.snapshot()
        self._compare(event, "receipt", one, two)
        other = self.second.snapshot()
        for field in fields(Snapshot):
            self._compare(event, field.name, getattr(self._state, field.name), getattr(other, field.name))
        return one

    def snapshot(self) -> Snapshot:
        """The snapshot of the first."""
        if self._state is None:
            self._state = self.first.snapshot()
        return self._state

    def close(self) -> None:
        """Close both, the second one even if the first fails."""
        try:
            self.first.close()
        finally:
            self.second.close()

    def take_differences(self, event_index: int) -> list[Violation]:
        """One violation of `rerun` per field that differed at the last event."""
        found, self._found = self._found, []
        return [self._violation(event_index, *difference) for difference in found]

    def _compare(self, event: Event, field: str, one: Any, two: Any) -> None:
        self.compared[field] += 1
        # Texts, not values: the digest of a run is taken from texts, and a set's order shows only there.
        if repr(one) != repr(two):
            self._found.append((event, field, one, two))

    def _violation(self, event_index: int, event: Event, field: str, one: Any, two: Any) -> Violation:
        where, left, right = _first_difference(field, one, two)
        return Violation(
            oracle="rerun", owner=str(Owner.RECORDER), clock=str(CLOCKS.get(field, Clock.HOST)),
            phase=str(Point.AFTER_EVENT), formula=f"first.{field} == second.{field}",
            values=f"{_short(left)} == {_short(right)} at {where}",
            fact=f"first run: {where} is {_short(left)} after `{format_event(event)}`",
            counterfact=f"second run: {where} is {_short(right)} after the same events",
            source="a run is a function of its configuration and events", event_index=event_index,
        )  # fmt: skip


def _try(system: System, event: Event) -> tuple[Receipt | None, EngineFault | None]:
    try:
        return system.apply(event), None
    except EngineFault as fault:
        return None, fault


def _first_difference(where: str, one: Any, two: Any) -> tuple[str, Any, Any]:
    """The innermost place where two records differ."""
    if type(one) is type(two):
        pairs: list[tuple[str, Any, Any]] = []
        if hasattr(one, "__dataclass_fields__"):
            pairs = [(f"{where}.{f.name}", getattr(one, f.name), getattr(two, f.name)) for f in fields(one)]
        elif isinstance(one, tuple | list) and len(one) == len(two):
            pairs = [
                (f"{where}[{index}]", left, right) for index, (left, right) in enumerate(zip(one, two, strict=True))
            ]
        elif isinstance(one, dict) and list(one) == list(two):
            pairs = [(f"{where}[{key}]", one[key], two[key]) for key in one]
        for name, left, right in pairs:
            if repr(left) != repr(right):
                return _first_difference(name, left, right)
    return where, one, two


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:120] + "…"
