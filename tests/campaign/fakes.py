"""Small systems and oracles for tests of the machine and of campaigns; no engine, no tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specfuzz.campaign.bare import BareSystem
from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Evict, Retract, Settle
from specfuzz.core.oracle import Oracle, Reachable, Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.errors import ConfigError, EngineFault
from specfuzz.session import Session


def rule_of(name: str, check: object, *, owner: Owner = Owner.SCHEDULER, needs: Capability = Capability.NONE) -> Oracle:
    return Oracle(
        name=name, formula=name, clock=Clock.HOST, owner=owner, point=Point.AFTER_EVENT, scope=Scope.RUN,
        source="a test", twin="anything", check=check, needs=needs,
    )  # fmt: skip


def _no_stop(step: Step) -> Finding:
    if not isinstance(step.event, Settle):
        return None
    stopped = [rid for rid, reason, _length in step.receipt.finished if reason == "stop"]
    return Clash("stopped", "nothing may stop", f"{stopped} did") if stopped else Verdict.HOLDS


def _no_large_eviction(step: Step) -> Finding:
    if not isinstance(step.event, Evict):
        return None
    return Clash("large", "evictions are small", f"{step.event.n}") if step.event.n > 1 else Verdict.HOLDS


def _retract_is_honest(step: Step) -> Finding:
    if not isinstance(step.event, Retract):
        return None
    return Verdict.HOLDS if step.receipt.retracted == (step.event.rid,) else Clash("retracted", "asked", "got another")


#: Violated in many of the longer runs of any system.
NO_STOP = rule_of("nothing-stops", _no_stop)
#: Violated wherever something is retracted.
NO_RETRACTION = rule_of(
    "nothing-is-retracted",
    lambda step: Clash("retracted", "nothing may be", "it was") if isinstance(step.event, Retract) else None,
)
NO_LARGE_EVICTION = rule_of("evictions-are-small", _no_large_eviction, owner=Owner.RADIX_CACHE)
#: Holds on the bare system and is violated by `Mutated`.
RETRACT_IS_HONEST = rule_of("retract-is-honest", _retract_is_honest)
#: Never applies.
SILENT = rule_of("silent", lambda step: None)

SETTLES = Reachable(name="settles", reached=lambda step: isinstance(step.event, Settle))


class Mutated(BareSystem):
    """Retracts, but reports nothing about it when two requests are live."""

    name = "mutated:silent-retract"

    def apply(self, event: Event) -> Receipt:
        receipt = super().apply(event)
        if isinstance(event, Retract) and len(self._running) + len(self._fresh) >= 1:
            return Receipt(retracted=(event.rid, event.rid))
        return receipt


@dataclass(frozen=True)
class Planted:
    """A declared bug; its name says which of `SYSTEMS` has it."""

    name: str
    killed_by: tuple[str, ...] = ("retract-is-honest",)
    source: str = "a test"
    algorithm: str | None = None
    needs: Capability = Capability.NONE
    config: Mapping[str, Any] = field(default_factory=dict)
    equivalent: str | None = None


class Recording(BareSystem):
    """Keeps every event that it was ever given."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def apply(self, event: Event) -> Receipt:
        self.seen.append(event)
        return super().apply(event)


class Crashing(BareSystem):
    """Raises at the first retraction."""

    name = "crashing"

    def apply(self, event: Event) -> Receipt:
        if isinstance(event, Retract):
            raise EngineFault("KeyError: 3")
        return super().apply(event)


SYSTEMS = {"silent-retract": Mutated, "crashing": Crashing, "harmless": BareSystem}


class Stillborn(BareSystem):
    """Doesn't even start."""

    name = "stillborn"

    def reset(self, config: EngineConfig) -> None:
        raise EngineFault("the engine process died", kind="crash")


class OnlyPageOne(BareSystem):
    """Refuses configurations with pages."""

    name = "only-page-one"

    def capabilities(self, config: EngineConfig) -> Capability:
        if config.page_size != 1:
            raise ConfigError(f"`page_size`={config.page_size} is not supported here.")
        return super().capabilities(config)


def events_of(sessions: list[Session]) -> list[tuple[Event, ...]]:
    return [tuple(step.event for step in session.steps) for session in sessions]
