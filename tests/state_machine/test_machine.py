"""What the machine chooses: every kind of event, in the asked shares, deterministically and legally; its findings."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import Phase
from hypothesis.stateful import RuleStrategy, run_state_machine_as_test

from specfuzz.campaign.bare import BareSystem
from specfuzz.campaign.running import run_examples, shorter
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import EVENT_TYPES, VERBS, Advance, Idle, Settle
from specfuzz.core.legality import Ledger
from specfuzz.core.verdict import Identity
from specfuzz.errors import EngineFault
from specfuzz.session import Session
from specfuzz.state_machine import PROFILES, ViolationFound, machine_settings, make_machine, violation_type
from specfuzz.state_machine import machine as machine_module
from tests.campaign.fakes import NO_LARGE_EVICTION, NO_RETRACTION, Crashing, events_of

OVERLAP = EngineConfig()
SYNC = EngineConfig(overlap=False)
TIGHT = EngineConfig(page_size=4, num_pages=14)
MIXED = EngineConfig(mixed_chunk=True, chunked_prefill=True)


def fresh_sessions_of(config: EngineConfig, examples: int = 60, seed: int = 1) -> list[Session]:
    found: list[Session] = []
    profile = shorter(PROFILES["dev"], examples)
    run_examples(BareSystem(), config, (), seed=seed, profile=profile, on_end=found.append)
    return found


#: For tests that only look at what was generated.
sessions_of = functools.cache(fresh_sessions_of)


def kinds_in(sessions: list[Session]) -> Counter[str]:
    return Counter(VERBS[type(step.event)] for session in sessions for step in session.steps)


@pytest.mark.parametrize("config", [OVERLAP, SYNC, EngineConfig(algorithm="NONE")], ids=lambda config: config.label())
def test_the_loop_is_frequent(config: EngineConfig) -> None:
    kinds = kinds_in(sessions_of(config, examples=150))
    assert kinds["verify"] / kinds.total() >= 0.15
    assert kinds["settle"] / kinds.total() >= 0.15


@pytest.mark.parametrize("config", [OVERLAP, SYNC], ids=lambda config: config.label())
def test_a_verify_carries_two_to_four_rows_on_average(config: EngineConfig) -> None:
    rows = [
        len(step.receipt.rows)
        for session in sessions_of(config, examples=150)
        for step in session.steps
        if VERBS[type(step.event)] == "verify"
    ]
    assert 2 <= sum(rows) / len(rows) <= 4


def test_every_kind_of_event_occurs() -> None:
    assert set(kinds_in(sessions_of(MIXED))) == set(EVENT_TYPES)


@pytest.mark.parametrize("config", [OVERLAP, SYNC, TIGHT, MIXED], ids=["overlap", "sync", "tight", "mixed"])
def test_whatever_is_drawn_is_legal(config: EngineConfig) -> None:
    assert sum(session.skipped for session in sessions_of(config)) == 0


def test_examples_are_as_long_as_the_profile_says() -> None:
    lengths = [len(session.steps) for session in sessions_of(OVERLAP)]
    assert max(lengths) == PROFILES["dev"].steps
    assert sum(lengths) >= 0.95 * len(lengths) * PROFILES["dev"].steps


def test_without_overlap_a_launch_is_settled_before_anything_else() -> None:
    between = Counter[type]()
    for session in sessions_of(SYNC):
        ledger = Ledger(SYNC)
        for step in session.steps:
            if ledger.in_flight:
                between[type(step.event)] += 1
            ledger.record(step.event, step.receipt)
    assert set(between) <= {Settle, Advance, Idle}


def test_rare_endings_are_steered_to() -> None:
    """Stops inside an accepted run, aborts and retractions of rows that are in flight."""
    inside = in_flight = retracted = 0
    for session in sessions_of(OVERLAP, examples=150):
        ledger = Ledger(OVERLAP)
        for step in session.steps:
            carried = {rid for launched in ledger.in_flight for rid in launched.rids}
            verb, rid = VERBS[type(step.event)], getattr(step.event, "rid", None)
            in_flight += verb == "abort" and rid in carried
            retracted += verb == "retract" and rid in carried
            ledger.record(step.event, step.receipt)
            settled = {known for known, tokens in step.receipt.emitted if len(tokens) > 1}
            for known, reason, length in step.receipt.finished:
                inside += reason == "stop" and known in settled and length < ledger.requests[known].settled
    assert inside >= 10 and in_flight >= 10 and retracted >= 10


def test_one_seed_gives_the_same_events_twice() -> None:
    first, again, other = (events_of(fresh_sessions_of(OVERLAP, 20, seed=seed)) for seed in (7, 7, 8))
    assert first == again != other


def test_the_events_do_not_depend_on_the_process() -> None:
    """Not on the hash seed, nor on which other local modules are imported (Hypothesis draws constants from them)."""
    program = (
        "{extra}\n"
        "from tests.state_machine.test_machine import OVERLAP, events_of, sessions_of\n"
        "import hashlib; print(hashlib.sha256(repr(events_of(sessions_of(OVERLAP, 20))).encode()).hexdigest())"
    )
    seen = set()
    for hash_seed, extra in (("1", ""), ("2", "import specfuzz.campaign.bench, specfuzz.trace.store")):
        command = [sys.executable, "-c", program.format(extra=extra)]
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": "."}
        seen.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(seen) == 1


def run_machine(system: BareSystem, **changes: object) -> None:
    machine = make_machine(lambda: Session(system, OVERLAP, (NO_RETRACTION, NO_LARGE_EVICTION)))
    run_state_machine_as_test(machine, settings=machine_settings(PROFILES["ci"], max_examples=100, **changes))


def test_two_bugs_are_reported_apart() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        run_machine(BareSystem(), phases=(Phase.generate, Phase.shrink))
    types = {type(error) for error in caught.value.exceptions}
    assert types == {
        violation_type(Identity("nothing-is-retracted", "scheduler", "after-event")),
        violation_type(Identity("evictions-are-small", "radix_cache", "after-event")),
    }


def test_a_finding_carries_its_violations_and_its_trace() -> None:
    with pytest.raises(ViolationFound) as caught:
        run_machine(BareSystem())
    found = caught.value
    assert [violation.identity for violation in found.violations] == [found.identity]
    assert found.trace.expected == found.identity
    assert found.violations[0].event_index == len(found.trace.steps) - 1
    assert "submit(a," in str(found)


def test_an_identity_has_one_exception_type() -> None:
    identity = Identity("a-rule", "scheduler", "steady")
    assert violation_type(identity) is violation_type(Identity("a-rule", "scheduler", "steady"))
    assert violation_type(identity) is not violation_type(Identity("a-rule", "scheduler", "prepared"))


def test_a_fault_of_the_engine_ends_the_run_as_itself() -> None:
    machine = make_machine(lambda: Session(Crashing(), OVERLAP, ()))
    with pytest.raises(EngineFault, match="KeyError"):
        run_state_machine_as_test(machine, settings=machine_settings(PROFILES["ci"]))


def test_this_hypothesis_asks_for_the_weighted_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """`_rules_strategy` is Hypothesis' own: a version without it would choose unweighted, silently."""
    chosen: list[int] = []
    choose = machine_module.SpecMachine.choose
    monkeypatch.setattr(
        machine_module.SpecMachine, "choose", lambda self, roll: (chosen.append(roll), choose(self, roll))[1]
    )
    sessions = fresh_sessions_of(OVERLAP, examples=5)
    assert len(chosen) >= sum(len(session.steps) for session in sessions)


def test_the_rules_also_work_under_the_choice_of_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "_WeightedRules", RuleStrategy)
    sessions = fresh_sessions_of(OVERLAP, examples=20)
    kinds = kinds_in(sessions)
    assert {"submit", "prefill", "prepare", "verify", "settle"} <= set(kinds)
    assert sum(session.skipped for session in sessions) == 0
