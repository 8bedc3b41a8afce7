"""Systems that crash, fall silent or are interrupted at a chosen moment, registered as a third party would do it."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Retract
from specfuzz.core.port import SYSTEMS, OpenOptions, System
from specfuzz.core.receipt import Receipt
from specfuzz.errors import EngineFault
from specfuzz.systems.reference import ReferenceSystem


class CrashesOnRetract(ReferenceSystem):
    """Raises at every retraction. crashes: so far, over all that were opened."""

    crashes = 0

    def __init__(self) -> None:
        super().__init__(name="failing")

    def apply(self, event: Event) -> Receipt:
        if isinstance(event, Retract):
            type(self).crashes += 1
            raise EngineFault("KeyError: 3")
        return super().apply(event)


class CrashesOnce(CrashesOnRetract):
    """Raises at the first retraction and never again."""

    def apply(self, event: Event) -> Receipt:
        return super().apply(event) if not self.crashes else ReferenceSystem.apply(self, event)


class HangsAtStart(CrashesOnRetract):
    """As an engine process does that hangs in `reset`."""

    def reset(self, config: EngineConfig) -> None:
        raise EngineFault("the engine did not answer within 3 seconds (`--step-timeout`)", kind="hang")


def interrupted_at(crash: int, *signals: int) -> type[CrashesOnRetract]:
    """Crashes on every retraction; the signals arrive at the crash of that number, the first being 1."""

    class Interrupted(CrashesOnRetract):
        def apply(self, event: Event) -> Receipt:
            if isinstance(event, Retract) and self.crashes == crash - 1:
                type(self).crashes += 1
                for number in signals:
                    signal.raise_signal(number)
            return super().apply(event)

    return Interrupted


def registered(monkeypatch: pytest.MonkeyPatch, opened: Callable[[], System]) -> None:
    """From here to the end of the test `--system failing` opens this."""

    class Factory:
        name, summary = "failing", "fails on purpose"

        def open(self, argument: str, options: OpenOptions) -> System:
            return opened()

        def availability(self) -> tuple[bool, str, str, str]:
            return True, "0", "", ""

    SYSTEMS.names()  # ours first
    monkeypatch.setitem(SYSTEMS._things, "failing", Factory())
