"""One loaded SGLang and the runs on it: what an engine process serves, and what is called directly in-process."""

from __future__ import annotations

import time
import traceback

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Idle
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.errors import EngineFault
from specfuzz.systems.sglang import mutants, versions
from specfuzz.systems.sglang.driver import Driver
from specfuzz.systems.sglang.drives import check_config
from specfuzz.systems.sglang.harness import publish_config
from specfuzz.systems.sglang.observer import Observer


class Runner:
    """Import once, many runs. Times are kept so that a bench can tell the engine's own cost from the adapter's."""

    def __init__(self) -> None:
        """Imports SGLang; raises MissingPart if it can't be imported or a name has moved."""
        self.engine = versions.load()
        self.engine_seconds = 0.0
        self.observer_seconds = 0.0
        self._published: EngineConfig | None = None
        self._planted: mutants.Planted | None = None
        self._driver: Driver | None = None
        self._observer: Observer | None = None

    @property
    def recording(self) -> bool:
        """Whether writers of the host ledger are known (True before the first run)."""
        return self._driver is None or self._driver.writes.recording

    def reset(self, config: EngineConfig, mutant: str | None = None) -> Snapshot:
        """Start a fresh engine with `mutant` planted, or none; returns its first snapshot. Raises ConfigError."""
        check_config(config)
        if self._planted is not None:
            self._planted.undo()
            self._planted = None
        if self._published != config:
            publish_config(self.engine, config)
            self._published = config
        if mutant is not None:
            self._planted = mutants.get(mutant).plant(self.engine)
        self._driver = Driver(self.engine, config)
        self._observer = Observer(self._driver)
        return self._observer.snapshot()

    def step(self, event: Event) -> tuple[Receipt, Snapshot]:
        """Apply one event and look; raises EngineFault if the engine raised."""
        assert self._driver is not None and self._observer is not None, "reset comes first"
        start = time.perf_counter()
        try:
            receipt = self._driver.apply(event)
        except Exception as error:
            raise EngineFault(describe(error)) from error
        middle = time.perf_counter()
        snapshot = self._observer.snapshot(idle=type(event) is Idle)
        self.engine_seconds += middle - start
        self.observer_seconds += time.perf_counter() - middle
        return receipt, snapshot

    def close(self) -> None:
        """Take a planted bug out of the engine's classes again; idempotent."""
        if self._planted is not None:
            self._planted.undo()
            self._planted = None
        self._driver = self._observer = None


#: What the paths of the engine's own files have in common.
_ENGINE = "/sglang/srt/"
#: Frames that a fault names: where it was raised, and the callers in the engine.
MOST_FRAMES = 4


def describe(error: BaseException) -> str:
    """Type, first line and place of an exception that came out of the engine, and who in the engine called there."""
    frames = traceback.extract_tb(error.__traceback__)
    engine = [frame for frame in frames if _ENGINE in frame.filename]
    called = [*frames[-1:], *reversed(engine[-MOST_FRAMES:])]
    places = list(dict.fromkeys(f"{_short(frame.filename)}:{frame.lineno}" for frame in called))[:MOST_FRAMES]
    first = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
    return f"{type(error).__name__}: {first}" + (f" at {', called at '.join(places)}" if places else "")


def _short(filename: str) -> str:
    """A path from the engine's package on, as its own tree and an installed one have it alike."""
    return _ENGINE.lstrip("/") + filename.rpartition(_ENGINE)[2] if _ENGINE in filename else filename.rpartition("/")[2]
