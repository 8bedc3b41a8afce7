"""SGLang behind the System port: in a process of its own, or in this one where it is importable right here."""

from __future__ import annotations

import sys
from pathlib import Path

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.errors import EngineFault, MissingPart
from specfuzz.systems.sglang import drives, protocol
from specfuzz.systems.sglang.pipe import SPARE, EngineProcess


def capabilities_of(config: EngineConfig, *, recording: bool) -> Capability:
    """What the adapter can do and show. Streams are no-ops on a CPU: no view can lag, and nothing watches for races."""
    drives.check_config(config)
    flags = Capability.RELAY_VIEW | Capability.DEVICE_VIEW | Capability.LAUNCH_VIEW | Capability.CONTENT_VIEW
    flags |= Capability.TREE_VIEW | Capability.METRICS_VIEW
    for wanted, flag in (
        (config.speculative, Capability.SPECULATIVE | Capability.DRAFT_KV | Capability.DRAFT_EXTRAS),
        (config.speculative and config.topk > 1, Capability.TREE),
        (config.overlap, Capability.OVERLAP),
        (config.radix, Capability.RADIX),
        (config.page_size > 1, Capability.PAGED),
        (config.mixed_chunk, Capability.MIXED_CHUNK),
        (config.chunked_prefill, Capability.CHUNKED_PREFILL),
        (config.grammar, Capability.GRAMMAR),
        (config.speculative, Capability.GRAMMAR_OVERLAP),
        (recording, Capability.WRITE_RECORDS),
    ):
        if wanted:
            flags |= flag
    return flags


class RemoteSglang:
    """The real SGLang scheduler classes in their own environment and process, behind the System port."""

    name = "sglang"

    def __init__(
        self, python: Path, *, step_timeout: float = 30.0, engine_path: str | None = None, mutant: str | None = None
    ) -> None:
        """python: interpreter of the engine environment. mutant: planted bug that every run carries, or None."""
        self._kind = (python, engine_path)
        self._timeout = step_timeout
        self._process: EngineProcess | None = SPARE.take(*self._kind)
        self._mutant = mutant
        self._snapshot: Snapshot | None = None
        if mutant is not None:
            self.name = f"sglang:{mutant}"
        self.version = self._process.loaded.version
        self._recording = self._process.loaded.recording
        self.engine_seconds = 0.0
        self.observer_seconds = 0.0

    def capabilities(self, config: EngineConfig) -> Capability:
        """What the adapter can do and show under this configuration; raises ConfigError if it can't run it."""
        return capabilities_of(config, recording=self._recording)

    def reset(self, config: EngineConfig) -> None:
        """Start a fresh engine; after a hang or a crash, in a new process."""
        drives.check_config(config)
        if self._process is None or not self._process.alive:
            if self._process is not None:
                self._process.close()
            try:
                self._process = SPARE.take(*self._kind)
            except MissingPart as error:  # it was here when the run began: that it is gone is a finding too
                raise EngineFault(f"the engine can't be started again: {error}", kind="crash") from error
        # Twice the timeout: we end a hang ourselves, unless we are gone by then.
        message = protocol.Reset(config=config, mutant=self._mutant, step_limit=2 * self._timeout)
        self._snapshot = protocol.join(None, self._process.ask(message, self._timeout).difference)

    def apply(self, event: Event) -> Receipt:
        """Run the event in the engine process; raises EngineFault if the engine raised, hung or died."""
        assert self._process is not None, "reset comes first"
        reply = self._process.ask(protocol.pack(event), self._timeout)
        assert reply.receipt is not None, "`ask` sees to it"
        self._snapshot = protocol.join(self._snapshot, reply.difference)
        self.engine_seconds += reply.engine_seconds
        self.observer_seconds += reply.observer_seconds
        return reply.receipt

    def snapshot(self) -> Snapshot:
        """The state after the last event; it travelled with the receipt."""
        assert self._snapshot is not None, "reset comes first"
        return self._snapshot

    def close(self) -> None:
        """Give the engine process back (one idle process is kept, see `_Spare`); idempotent."""
        if self._process is not None:
            SPARE.give_back(self._process, *self._kind)
            self._process = None


class LocalSglang:
    """The same classes in this very process, for an environment in which `import sglang` works. A crash ends it all."""

    name = "sglang"

    def __init__(self, *, engine_path: str | None = None, mutant: str | None = None) -> None:
        """Imports SGLang here; raises MissingPart."""
        from specfuzz.systems.sglang.runner import Runner

        if engine_path is not None and engine_path not in sys.path:
            sys.path.insert(0, engine_path)
        if mutant is not None:
            self.name = f"sglang:{mutant}"
        self._runner = Runner()
        self._mutant = mutant
        self._snapshot: Snapshot | None = None
        self.version = self._runner.engine.version

    @property
    def engine_seconds(self) -> float:
        """Seconds spent in the engine's own code so far."""
        return self._runner.engine_seconds

    @property
    def observer_seconds(self) -> float:
        """Seconds spent taking snapshots so far."""
        return self._runner.observer_seconds

    def capabilities(self, config: EngineConfig) -> Capability:
        """What the adapter can do and show under this configuration; raises ConfigError if it can't run it."""
        return capabilities_of(config, recording=self._runner.recording)

    def reset(self, config: EngineConfig) -> None:
        """Start a fresh engine."""
        self._snapshot = self._runner.reset(config, self._mutant)

    def apply(self, event: Event) -> Receipt:
        """Run the event; raises EngineFault if the engine raised."""
        receipt, self._snapshot = self._runner.step(event)
        return receipt

    def snapshot(self) -> Snapshot:
        """The state after the last event."""
        assert self._snapshot is not None, "reset comes first"
        return self._snapshot

    def close(self) -> None:
        """Take planted bugs out of the classes; idempotent."""
        self._runner.close()
