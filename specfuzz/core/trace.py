"""A trace: configuration, applied events with their receipts, and the verdict that it is expected to end in."""

from __future__ import annotations

from dataclasses import dataclass

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.receipt import NOTHING, Receipt
from specfuzz.core.records import unguarded
from specfuzz.core.verdict import Identity

#: Version of the file format; see corpus/README.md for what may change within one version.
FORMAT_VERSION = 1


@unguarded
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One applied event and what the engine decided by itself."""

    event: Event
    receipt: Receipt = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A run that can be replayed for ever.

    system: as on the command line, e.g. `mutated:reserve-1x`. expected: identity of the violation at the last event, or
    None if it holds. seed: of the run that found it, for information only. note: free text.
    """

    config: EngineConfig
    steps: tuple[TraceStep, ...]
    system: str = "reference"
    version: str = ""
    expected: Identity | None = None
    seed: int | None = None
    note: str = ""

    @property
    def events(self) -> tuple[Event, ...]:
        """The events alone."""
        return tuple(step.event for step in self.steps)
