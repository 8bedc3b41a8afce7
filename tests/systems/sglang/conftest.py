"""Fixtures of the tests that run real SGLang classes: the engine process is started once per worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.oracle import ORACLES
from specfuzz.core.port import OpenOptions, System
from specfuzz.session import Session
from specfuzz.systems.sglang import open_sglang
from specfuzz.systems.sglang.client import SPARE

Run = Callable[[EngineConfig, Sequence[Event]], Session]


@pytest.fixture(scope="session", autouse=True)
def end_the_spare_process() -> Iterator[None]:
    yield
    SPARE.end()


@pytest.fixture
def sglang() -> Iterator[System]:
    """The clean engine."""
    system = open_sglang("", OpenOptions())
    yield system
    system.close()


@pytest.fixture
def judged(sglang: System) -> Run:
    """Run events on the clean engine under every oracle; all of them must be legal and nothing may be violated."""

    def run(config: EngineConfig, events: Sequence[Event]) -> Session:
        session = Session(sglang, config, tuple(ORACLES))
        for event in events:
            violations = session.step(event)
            assert not violations, violations
        assert session.skipped == 0, f"{session.skipped} events were not legal"
        return session

    return run
