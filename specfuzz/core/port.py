"""The port: what a system must offer to be fuzzed. Reference, mutants, real engines and logs all satisfy it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.receipt import Receipt
from specfuzz.core.registry import Registry
from specfuzz.core.snapshot import Snapshot
from specfuzz.core.verdict import Violation
from specfuzz.errors import UsageError


@runtime_checkable
class System(Protocol):
    """One scheduler behind the port. It executes events; it neither chooses nor judges them.

    The caller applies only events that `legality.Ledger` admits, in order, between `reset` and the next `reset`.
    """

    name: str
    version: str

    def capabilities(self, config: EngineConfig) -> Capability:
        """What the system can do and show under this configuration; raises ConfigError if it can't run it at all."""

    def reset(self, config: EngineConfig) -> None:
        """Start a fresh engine; everything from before is gone."""

    def apply(self, event: Event) -> Receipt:
        """Run the event's scheduler code to its end; raises EngineFault if the engine raised, hung or died."""

    def snapshot(self) -> Snapshot:
        """The state now, without synchronising the device; launches settled by the last event are still listed."""

    def close(self) -> None:
        """Free everything (processes, environments); idempotent."""


@runtime_checkable
class Comparing(Protocol):
    """A system that runs others side by side (lockstep, rerun) and reports where they differ."""

    compared: Mapping[str, int]  # compared cells by field, since the system was opened

    def take_differences(self, event_index: int) -> list[Violation]:
        """Differences that the last event showed, each as a violation of the oracle `lockstep` or `rerun`."""


class SystemFactory(Protocol):
    """Opens a system from the text after the name's colon: `mutated:reserve-1x` opens `mutated` with "reserve-1x"."""

    @property
    def name(self) -> str:
        """What the user writes."""

    @property
    def summary(self) -> str:
        """One line for listings."""

    def open(self, argument: str, options: OpenOptions) -> System:
        """The opened system; raises MissingPart if it isn't on this machine."""

    def availability(self) -> tuple[bool, str, str, str]:
        """(available, version, why_not, install command)."""


class OpenOptions:
    """What the command line may tell a system: device kind, engine checkout, time limit of one step in seconds."""

    __slots__ = ("check_races", "device", "engine_path", "step_timeout")

    def __init__(
        self,
        *,
        device: str = "cpu",
        engine_path: str | None = None,
        step_timeout: float = 30.0,
        check_races: bool = True,
    ) -> None:
        """device: "cpu" or "cuda"; step_timeout: seconds per event of an engine in another process."""
        self.device = device
        self.engine_path = engine_path
        self.step_timeout = step_timeout
        self.check_races = check_races


def _load_builtin() -> None:
    from importlib import import_module

    import_module("specfuzz.systems")  # registers on import; core can't name it statically, it lies above


SYSTEMS: Registry[SystemFactory] = Registry("system", group="specfuzz.systems", load_builtin=_load_builtin)


def open_system(spec: str, options: OpenOptions | None = None) -> System:
    """Open `NAME` or `NAME:ARGUMENT`; raises UnknownName, UsageError or MissingPart."""
    name, _, argument = spec.partition(":")
    return SYSTEMS.get(name).open(argument, options or OpenOptions())


def accepted_configs(
    system: System, configs: Iterable[EngineConfig]
) -> tuple[dict[EngineConfig, Capability], dict[EngineConfig, UsageError]]:
    """What the system can do and show under each configuration that it runs, and why it refuses each of the others.

    Both in the given order. A refusal is a ConfigError, or an UnknownName where the system lacks the algorithm.
    """
    accepted: dict[EngineConfig, Capability] = {}
    refused: dict[EngineConfig, UsageError] = {}
    for config in configs:
        try:
            accepted[config] = system.capabilities(config)
        except UsageError as error:
            refused[config] = error
    return accepted, refused
