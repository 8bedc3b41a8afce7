"""The algorithms of the reference keep their contract, and a bad habit of a worker breaks each clause of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from specfuzz.conformance import run_algorithm_conformance
from specfuzz.conformance.algorithm import CLAUSES
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Verify
from specfuzz.core.port import System
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot, WriteRecord
from specfuzz.errors import UnknownName
from specfuzz.mutants import MUTANTS
from specfuzz.reference.algorithms import ALGORITHMS
from specfuzz.reference.scheduler import Scheduler
from specfuzz.systems.reference import ReferenceSystem
from tests.conformance.doubles import AcceptsOneAtATime


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_an_algorithm_keeps_its_contract(name: str) -> None:
    report = run_algorithm_conformance(name)
    report.must_pass()
    assert {clause.name for clause in CLAUSES} & {clause.name for clause in report.clauses}


def planted(patch: Callable[[Scheduler], None]) -> Callable[[], System]:
    return lambda: ReferenceSystem(patch=patch)


def publishes_twice(engine: Scheduler) -> None:
    publish = engine.future_map.publish

    def twice(batch: Any, new_seq_lens: Any) -> None:
        publish(batch, new_seq_lens)
        publish(batch, new_seq_lens)

    engine.future_map.publish = twice  # type: ignore[method-assign]


def publishes_never(engine: Scheduler) -> None:
    engine.future_map.publish_plain = lambda batch: None  # type: ignore[method-assign]


class WritesElsewhere(ReferenceSystem):
    """A cell behind every window changes with each event."""

    events = 0

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        self.events += 1
        if seen.device is None:
            return seen
        cells = (*seen.device.target_v1[:-1], self.events)
        return replace(seen, device=replace(seen.device, target_v1=cells))


class CommitsInTheNameOfAnOwner(ReferenceSystem):
    """The ledger is written where a decode is launched, by somebody who may write it elsewhere."""

    launching = False

    def apply(self, event: Event) -> Receipt:
        self.launching = isinstance(event, Verify)
        return super().apply(event)

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        if not self.launching or seen.writes is None:
            return seen
        own = WriteRecord(rid="a", field="kv_allocated_len", old=8, new=9, writer="alloc_for_spec_decode")
        return replace(seen, writes=(*seen.writes, own))


class ClaimsNoDraft(ReferenceSystem):
    def capabilities(self, config: EngineConfig) -> Capability:
        return super().capabilities(config) & ~Capability.DRAFT_KV


DOUBLES: dict[str, Callable[[], System]] = {
    "runs-are-in-range": AcceptsOneAtATime,
    "frontier-steps-by-the-run": planted(MUTANTS.get("old-frontier-published").patch),
    "publishes-once-per-forward": planted(publishes_twice),
    "windows-are-reserved": planted(MUTANTS.get("reserve-1x").patch),
    "writes-stay-in-the-footprint": WritesElsewhere,
    "keeps-off-the-ledger": planted(MUTANTS.get("worker-commits").patch),
    "flags-are-complete": ClaimsNoDraft,
}


@pytest.mark.parametrize("clause", DOUBLES)
def test_a_bad_habit_of_a_worker_breaks_its_clause(clause: str) -> None:
    report = run_algorithm_conformance("EAGLE", clauses=(clause,), open_engine=DOUBLES[clause], max_time=0.1)
    assert [(one.name, one.passed) for one in report.clauses] == [(clause, False)], report


#: By clause: the registered rule on which it leans, and which its double breaks.
LEANS_ON = {
    "runs-are-in-range": "right-draft-is-accepted",
    "frontier-steps-by-the-run": "publish-equals-result",
    "publishes-once-per-forward": "publishes-once",
    "windows-are-reserved": "window-inside-the-reserve",
}


@pytest.mark.parametrize("clause", LEANS_ON)
def test_a_clause_that_leans_on_a_rule_names_it(clause: str) -> None:
    report = run_algorithm_conformance("EAGLE", clauses=(clause,), open_engine=DOUBLES[clause], max_time=0.1)
    assert report.clauses[0].because.endswith(f"(`{LEANS_ON[clause]}`)")


def test_whoever_writes_the_ledger_in_a_launch_breaks_the_clause_also_an_owner() -> None:
    chosen = ("keeps-off-the-ledger",)
    report = run_algorithm_conformance("EAGLE", clauses=chosen, open_engine=CommitsInTheNameOfAnOwner, max_time=0.1)
    assert not report.clauses[0].passed and "`alloc_for_spec_decode` writes" in report.clauses[0].because


def test_for_an_algorithm_without_drafts_somebody_publishes_too() -> None:
    chosen = ("publishes-once-per-forward",)
    opener = planted(publishes_never)
    (judged,) = run_algorithm_conformance("NONE", clauses=chosen, open_engine=opener, max_time=0.1).clauses
    assert not judged.passed and "published 0 times" in judged.because


def test_no_clause_of_an_algorithm_is_without_one_that_breaks_it() -> None:
    assert {clause.name for clause in CLAUSES} == set(DOUBLES)


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(UnknownName, match="`EAGLE`"):
        run_algorithm_conformance("EAGEL")
