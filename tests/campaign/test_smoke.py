"""`mutants --smoke`: what a pool of traces kills, and which oracles are needed for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specfuzz.campaign.bare import BareSystem
from specfuzz.campaign.smoke import Smoked, SmokePlan, SmokeReport, run_smoke
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import Step
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.core.verdict import Verdict
from specfuzz.errors import UsageError
from tests.campaign.fakes import NO_STOP, RETRACT_IS_HONEST, SILENT, SYSTEMS, OnlyPageOne, Planted, rule_of

PAIR = "submit(a,2,9) submit(b,2,9) prefill(a) settle prefill(b) settle "


def trace(text: str, **config: Any) -> Trace:
    steps = tuple(TraceStep(event=event) for event in parse_events(text))
    return Trace(config=EngineConfig(**config), steps=steps)


QUIET, RETRACTING = trace(PAIR + "prepare verify settle"), trace(PAIR + "retract(b) idle")


def smoke(*mutants: Planted, **changes: Any) -> SmokeReport:
    fields: dict[str, Any] = {
        "mutants": mutants, "open_mutant": lambda name: SYSTEMS[name](), "clean": BareSystem(),
        "oracles": (RETRACT_IS_HONEST, SILENT), "pool": (QUIET, RETRACTING, QUIET),
    }  # fmt: skip
    return run_smoke(SmokePlan(**{**fields, **changes}))


def test_a_mutant_dies_by_the_first_trace_on_which_it_shows() -> None:
    report = smoke(Planted("silent-retract"))
    (mutant,) = report.mutants
    assert mutant.killed and (mutant.by, mutant.seeds_found, mutant.seeds) == (("retract-is-honest",), 1, 2)
    assert mutant.events == len(QUIET.steps) + len(RETRACTING.steps) and report.share == 1.0


def test_one_that_shows_on_no_trace_survives() -> None:
    report = smoke(Planted("silent-retract"), Planted("harmless"))
    assert report.survivors == ("harmless",) and (report.killed, report.share) == (1, 0.5)
    assert report.mutants[1].seeds == 3


def test_a_fault_of_the_engine_is_no_kill() -> None:
    (mutant,) = smoke(Planted("crashing")).mutants
    assert not mutant.killed and mutant.other == ("engine-fault/engine/exception",)


def test_an_oracle_that_stumbles_over_a_broken_engine_is_no_kill() -> None:
    def reads_a_single_one(step: Step) -> Verdict:
        (_only,) = step.receipt.retracted or ("nobody",)
        return Verdict.HOLDS

    clumsy = rule_of("clumsy", reads_a_single_one)
    (mutant,) = smoke(Planted("silent-retract", ("clumsy",)), oracles=(clumsy,)).mutants
    assert not mutant.killed and mutant.other == ("oracle-fault/recorder/valueerror-in-clumsy",)


def test_a_trace_that_the_clean_engine_fails_is_used_for_nothing() -> None:
    stopped = trace("submit(a,2,9) prefill(a) settle finish(a@1) prepare verify settle")
    report = smoke(Planted("harmless", ("nothing-stops",)), oracles=(NO_STOP,), pool=(stopped, trace("idle")))
    assert report.survivors == ("harmless",)
    assert report.spoilt == ((0, "nothing-stops/scheduler/after-event"),) and report.pool == 1


def test_a_mutant_runs_only_traces_that_its_pins_allow() -> None:
    pool = (RETRACTING, replace(RETRACTING, config=EngineConfig(page_size=4)))
    (mutant,) = smoke(Planted("silent-retract", needs=Capability.PAGED), pool=pool).mutants
    assert (mutant.seeds, mutant.seeds_found) == (1, 1)
    (mutant,) = smoke(Planted("silent-retract", config={"overlap": False}), pool=pool).mutants
    assert mutant.seeds == 0 and not mutant.killed


def test_traces_for_an_engine_that_can_do_more_are_left_out() -> None:
    pool = (RETRACTING, replace(RETRACTING, config=EngineConfig(page_size=4)))
    assert smoke(Planted("silent-retract"), clean=OnlyPageOne(), pool=pool).pool == 1


def test_equivalent_mutants_are_listed_and_not_counted() -> None:
    report = smoke(Planted("harmless", equivalent="changes nothing"))
    assert report.equivalent == (("harmless", "changes nothing"),) and not report.mutants and report.share == 0.0


def test_a_mutant_that_names_no_oracle_in_use_is_refused() -> None:
    with pytest.raises(UsageError, match="`kv-in-order`"):
        smoke(Planted("harmless", ("kv-in-order",)))


def test_it_ends_when_it_is_asked_to() -> None:
    report = smoke(Planted("silent-retract"), Planted("harmless"), stop=lambda: True)
    assert report.interrupted and not report.mutants


def killed(name: str, *by: str) -> Smoked:
    return Smoked(
        name=name, source="", needs=Capability.NONE, by=by, seeds=1, seeds_found=bool(by), events=None, seconds=None
    )  # fmt: skip


def test_an_oracle_is_redundant_if_the_same_mutants_die_without_it() -> None:
    report = SmokeReport(
        mutants=(killed("one", "a"), killed("two", "a", "b"), killed("three", "b", "c"), killed("four")),
        equivalent=(), oracles=("a", "b", "c", "d"), pool=1,
    )  # fmt: skip
    assert report.redundant_oracles == ("b", "c", "d")
    assert report.without_kill == ("d",)
