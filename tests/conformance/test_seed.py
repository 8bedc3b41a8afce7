"""The seed of a conformance run chooses its walks, and the same one chooses the same."""

from __future__ import annotations

from contextlib import closing

from specfuzz.conformance.clauses import Evidence
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.systems.reference import ReferenceSystem


def walked(seed: int) -> list[Event]:
    with closing(Evidence(ReferenceSystem, [EngineConfig()], deadline=0.0, seed=seed)) as evidence:
        return evidence.runs[0].events


def test_a_seed_chooses_the_walks() -> None:
    assert walked(1) == walked(1) != walked(2)
