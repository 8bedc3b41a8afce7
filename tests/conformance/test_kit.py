"""The kit itself: what it takes, what it puts aside, and that it never passes what it could not judge."""

from __future__ import annotations

from typing import Any

import pytest

from specfuzz.campaign.bare import BareSystem
from specfuzz.conformance import ConformanceReport, clauses, run_conformance
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.errors import ConfigError, UnknownName
from specfuzz.systems.reference import ReferenceSystem
from tests.conformance.doubles import ClaimsOverlapAlways, DoesNotStart, Faults, KnowsItsNumber

PLAIN = EngineConfig()


def aside(report: ConformanceReport) -> dict[str, str]:
    return {clause.name: clause.because for clause in report.not_applicable}


@pytest.mark.slow
def test_the_reference_keeps_its_contract() -> None:
    report = run_conformance("reference")
    report.must_pass()
    assert set(aside(report)) == {"unclaimed-views-are-absent"}, "it claims every view that there is"


@pytest.mark.slow
@pytest.mark.engine("sglang")
def test_the_real_engine_keeps_its_contract() -> None:
    report = run_conformance("sglang")
    report.must_pass()
    assert {"a-look-never-synchronises", "claimed-race-check-is-real"} <= set(aside(report))


def test_a_system_may_be_a_name_a_class_a_function_or_an_opened_one() -> None:
    chosen = ("emitted-is-the-new-output",)
    for system in ("reference", ReferenceSystem, lambda: ReferenceSystem(), ReferenceSystem()):
        assert run_conformance(system, PLAIN, clauses=chosen).passed


def test_of_an_opened_system_nobody_claims_what_needs_a_second_one() -> None:
    report = run_conformance(ReferenceSystem(), PLAIN, clauses=("two-instances-agree", "close-twice-is-once"))
    assert set(aside(report)) == {"two-instances-agree", "close-twice-is-once"}
    assert not report.passed, "nothing was judged, which is no pass"


def test_a_lost_ability_puts_its_clauses_aside_with_the_reason() -> None:
    class Blind(ReferenceSystem):
        def capabilities(self, config: EngineConfig) -> Capability:
            return super().capabilities(config) & ~Capability.LAZY_DEVICE

    report = run_conformance(Blind, PLAIN, clauses=("a-look-never-synchronises", "claimed-lazy-device-is-real"))
    assert not report.clauses and all("LAZY_DEVICE" in because for because in aside(report).values())


def test_what_a_fault_hides_is_put_aside_and_the_fault_is_the_finding() -> None:
    report = run_conformance(DoesNotStart, PLAIN)
    (answered,) = [clause for clause in report.broken if clause.name == "every-legal-event-is-answered"]
    assert "the engine process died" in answered.because
    assert "the engine process died" in aside(report)["text-is-plain-decoding"]
    assert not [clause.name for clause in report.clauses if clause.passed and "text" in clause.name]


def test_the_reason_of_a_failure_names_the_configuration_and_the_event() -> None:
    report = run_conformance(Faults, PLAIN, clauses=("every-legal-event-is-answered",))
    assert "EAGLE overlap page 1: `abort(" in report.clauses[0].because
    with pytest.raises(AssertionError, match=r"(?s)Faults breaks its contract.*every-legal-event-is-answered"):
        report.must_pass()


def test_instances_that_take_long_to_open_are_compared_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clauses, "SLOW_OPENING", -1.0)
    chosen = ("two-instances-agree",)
    (clause,) = run_conformance(ReferenceSystem, PLAIN, clauses=chosen).clauses
    assert clause.passed and "one instance after the other" in clause.because
    assert not run_conformance(KnowsItsNumber, PLAIN, clauses=chosen).passed


def test_a_system_that_only_keeps_accounts_shows_nothing_and_fails() -> None:
    report = run_conformance(BareSystem, PLAIN.with_(chunked_prefill=False))
    broken = {clause.name for clause in report.broken}
    assert {"every-request-is-shown", "emitted-is-the-new-output", "text-is-plain-decoding"} <= broken
    assert "claimed-relay-view-is-real" in aside(report)


def test_a_configuration_that_the_system_refuses_is_the_users_mistake() -> None:
    class ChainsOnly(ReferenceSystem):
        def capabilities(self, config: EngineConfig) -> Capability:
            if config.topk > 1:
                raise ConfigError(f"`topk`={config.topk} does not fit `system`=double.")
            return super().capabilities(config)

    with pytest.raises(ConfigError, match="`topk`=2"):
        run_conformance(ChainsOnly, PLAIN.with_(topk=2))


def test_an_unknown_clause_is_refused_with_the_closest() -> None:
    with pytest.raises(UnknownName, match="`draining-ends`"):
        run_conformance(ReferenceSystem, PLAIN, clauses=("draining-end",))


def test_only_the_asked_for_clauses_are_judged() -> None:
    report = run_conformance(ClaimsOverlapAlways, PLAIN, clauses=("finished-is-shown", "retracted-is-shown"))
    assert [clause.name for clause in report.clauses] == ["finished-is-shown", "retracted-is-shown"] and report.passed


@pytest.mark.parametrize(
    "changes",
    [
        {"context_len": 8, "chunked_prefill": True}, {"max_reqs": 1, "mixed_chunk": True}, {"num_pages": 12},
        {"page_size": 64, "num_pages": 4}, {"algorithm": "NONE", "page_size": 16, "chunked_prefill": True},
        {"topk": 4, "draft_token_num": 8},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_small_or_large_engine_has_no_room_to_show_is_no_failure(changes: dict[str, Any]) -> None:
    run_conformance(ReferenceSystem, PLAIN.with_(**changes)).must_pass()


def test_a_reference_without_the_race_check_shows_no_races() -> None:
    report = run_conformance(lambda: ReferenceSystem(check_races=False), PLAIN)
    report.must_pass()
    assert "unclaimed-views-are-absent" in {clause.name for clause in report.clauses}
