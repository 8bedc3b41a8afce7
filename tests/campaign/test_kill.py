"""`mutants`: what counts as a kill, and what doesn't."""

from __future__ import annotations

from typing import Any

import pytest

from specfuzz.campaign.bare import BareSystem
from specfuzz.campaign.kill import KillPlan, KillReport, SeedKill, redundant_oracles, run_kill
from specfuzz.campaign.kill import MutantReport as Report
from specfuzz.campaign.running import first_violations, run_events
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import Oracle, Step
from specfuzz.core.port import System
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Verdict
from specfuzz.errors import ConfigError, MissingPart, TraceError, UsageError
from tests.campaign.fakes import NO_STOP, RETRACT_IS_HONEST, SILENT, SYSTEMS, Mutated, Planted, Stillborn, rule_of


def kill(*mutants: Planted, **changes: object) -> KillReport:
    fields: dict[str, Any] = {
        "mutants": mutants, "open_mutant": lambda name: SYSTEMS[name](), "clean": BareSystem(),
        "oracles": (RETRACT_IS_HONEST, SILENT), "seeds": 2, "max_examples": 150, "max_time": 60.0,
    }  # fmt: skip
    return run_kill(KillPlan(**{**fields, **changes}))


def test_a_mutant_is_killed_from_every_seed() -> None:
    report = kill(Planted("silent-retract"))
    (mutant,) = report.mutants
    assert (report.killed, report.total) == (1, 1)
    assert mutant.killed and mutant.by == ("retract-is-honest",) and mutant.seeds_found == 2
    for seed in mutant.seeds:
        assert seed.found is not None and seed.found.seed == seed.seed
        assert seed.first == {"retract-is-honest": len(seed.found.steps) - 1}
        assert seed.events >= len(seed.found.steps)


def test_the_seeds_find_it_the_same_way_again() -> None:
    first, again = (kill(Planted("silent-retract")).mutants[0].seeds for _ in range(2))
    assert [seed.found for seed in first] == [seed.found for seed in again]


def test_the_harmless_one_survives() -> None:
    (mutant,) = kill(Planted("harmless"), max_examples=20, seeds=1).mutants
    assert not mutant.killed and mutant.events_to_find is None
    assert mutant.seeds[0].events > 500


def test_a_crash_is_a_finding_and_no_kill() -> None:
    (mutant,) = kill(Planted("crashing"), max_examples=60, seeds=1).mutants
    assert not mutant.killed
    assert mutant.seeds[0].other == ("engine-fault/engine/exception",)


def test_an_oracle_that_stumbles_over_a_broken_engine_is_no_kill() -> None:
    def reads_a_single_one(step: Step) -> Verdict:
        (_only,) = step.receipt.retracted or ("nobody",)
        return Verdict.HOLDS

    clumsy = rule_of("clumsy", reads_a_single_one)
    (mutant,) = kill(Planted("silent-retract", ("clumsy",)), oracles=(clumsy,), max_examples=60, seeds=1).mutants
    assert not mutant.killed and mutant.seeds[0].other == ("oracle-fault/recorder/valueerror-in-clumsy",)


def test_a_trace_that_the_clean_engine_fails_as_well_is_no_kill() -> None:
    (mutant,) = kill(Planted("harmless", ("nothing-stops",)), oracles=(NO_STOP,), max_examples=60, seeds=1).mutants
    assert not mutant.killed
    assert "clean:nothing-stops/scheduler/after-event" in mutant.seeds[0].other


def test_only_configurations_that_the_mutant_allows_are_tried() -> None:
    pinned = Planted("silent-retract", algorithm="NONE", needs=Capability.OVERLAP | Capability.PAGED)
    for seed in kill(pinned).mutants[0].seeds:
        assert seed.found is not None
        config = seed.found.config
        assert (config.algorithm, config.overlap) == ("NONE", True) and config.page_size > 1


def test_a_mutant_that_needs_what_no_configuration_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="silent-retract"):
        kill(Planted("silent-retract", needs=Capability.TREE))


def test_a_mutant_that_names_no_known_oracle_is_refused() -> None:
    with pytest.raises(UsageError, match="`kv-in-order`"):
        kill(Planted("silent-retract", ("kv-in-order",)))


def test_equivalent_mutants_are_listed_and_not_counted() -> None:
    report = kill(Planted("harmless", equivalent="changes nothing"))
    assert report.total == 0 and report.equivalent == (("harmless", "changes nothing"),)


def test_kills_are_shrunk_with_the_named_oracles() -> None:
    def shrink(trace: Trace, system: System, oracles: Any) -> Trace:
        assert system.name == "mutated:silent-retract" and [oracle.name for oracle in oracles] == ["retract-is-honest"]
        return Trace(config=trace.config, steps=trace.steps[-3:])

    assert kill(Planted("silent-retract"), shrink=shrink).mutants[0].shrunk_events == 3


def seed_with(first: dict[str, int]) -> SeedKill:
    return SeedKill(seed=1, by=("a",), found=None, shrunk=None, first=first, events=1, seconds=0.0)


def test_an_oracle_that_never_fires_first_is_redundant() -> None:
    seeds = (seed_with({"a": 3, "b": 3, "c": 4}), seed_with({"c": 2, "d": 1}))
    report = Report(name="m", source="s", needs=Capability.NONE, seeds=seeds)
    assert redundant_oracles(["a", "b", "c", "d", "e"], [report]) == ("c", "e")


EVENTS = parse_events("submit(a,2,9) prefill(a) settle finish(a@1) prepare verify settle retract(a) idle")


def test_events_are_run_up_to_the_first_violation() -> None:
    identity, steps = run_events(BareSystem(), EngineConfig(), EVENTS, (NO_STOP,))
    assert str(identity) == "nothing-stops/scheduler/after-event" and len(steps) == 7
    identity, steps = run_events(BareSystem(), EngineConfig(), EVENTS, (SILENT,))
    assert identity is None and len(steps) == 8  # a finished request can't be retracted


def test_an_oracle_is_also_asked_behind_a_violation_of_another() -> None:
    events = parse_events(
        "submit(a,2,9) submit(b,2,9) submit(c,2,9) prefill(a) settle prefill(b) settle prefill(c) settle "
        "finish(a@1) prepare verify settle retract(b)"
    )
    rules: tuple[Oracle, ...] = (NO_STOP, RETRACT_IS_HONEST)
    assert first_violations(Mutated(), EngineConfig(), events, rules) == {"nothing-stops": 12, "retract-is-honest": 13}


def test_a_stop_keeps_the_seeds_that_were_tried_to_their_end() -> None:
    killed: list[str] = []
    report = kill(
        Planted("silent-retract"), Planted("harmless"), seeds=3, progress=killed.append, stop=lambda: len(killed) == 2
    )
    assert report.interrupted and [(m.name, len(m.seeds)) for m in report.mutants] == [("silent-retract", 2)]
    hasty = kill(Planted("harmless"), stop=lambda: True)
    assert hasty.interrupted and hasty.mutants == ()  # not a survivor: it did not get its time


def test_what_ends_it_early_takes_no_kill_along() -> None:
    def opened(name: str) -> System:
        if name == "harmless":
            raise MissingPart("the engine is gone")
        return SYSTEMS[name]()

    report = kill(Planted("silent-retract"), Planted("harmless"), open_mutant=opened)
    assert report.killed == 1 and str(report.error) == "the engine is gone"
    with pytest.raises(MissingPart):
        kill(Planted("harmless"), open_mutant=opened)


def test_a_mutant_without_an_oracle_is_refused_before_anything_runs() -> None:
    lines: list[str] = []
    with pytest.raises(UsageError, match="`kv-in-order`"):
        kill(Planted("silent-retract"), Planted("harmless", ("kv-in-order",)), progress=lines.append)
    assert lines == []


def test_a_kill_that_can_not_be_shrunk_is_a_kill() -> None:
    def shrink(trace: Trace, system: System, oracles: Any) -> Trace:
        raise TraceError("there is nothing to shrink")

    report = kill(Planted("silent-retract"), shrink=shrink)
    assert report.killed == 1 and report.mutants[0].shrunk_events is None


def test_a_clean_engine_that_does_not_start_vouches_for_nothing() -> None:
    (mutant,) = kill(Planted("silent-retract"), clean=Stillborn(), max_examples=60, seeds=1).mutants
    assert not mutant.killed and "clean:engine-fault/engine/crash" in mutant.seeds[0].other
