"""Every clause can fail: a system with one bad habit breaks it, and the reference, run in the same way, does not."""

from __future__ import annotations

from functools import cache

import pytest

from specfuzz.conformance import CLAUSES, ConformanceReport, run_conformance
from specfuzz.conformance.views import SHOWN_BY
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.systems.reference import ReferenceSystem
from tests.conformance.doubles import DOUBLES, Double

CASES = [pytest.param(double, id=f"{double.clause}-{at}") for at, double in enumerate(DOUBLES)]


@cache
def clean(config: EngineConfig) -> ConformanceReport:
    return run_conformance(ReferenceSystem, config)


@pytest.mark.parametrize("double", CASES)
def test_a_bad_habit_breaks_its_clause(double: Double) -> None:
    report = run_conformance(double.open, double.config, clauses=(double.clause,))
    assert [(clause.name, clause.passed) for clause in report.clauses] == [(double.clause, False)], report
    assert report.clauses[0].because and not report.passed


@pytest.mark.parametrize(
    "config", dict.fromkeys(double.config for double in DOUBLES), ids=lambda config: config.label()
)
def test_the_reference_keeps_every_clause_in_the_same_configuration(config: EngineConfig) -> None:
    clean(config).must_pass()


def test_no_clause_is_without_a_system_that_breaks_it() -> None:
    assert {clause.name for clause in CLAUSES} == {double.clause for double in DOUBLES}


def test_every_clause_says_what_it_demands_in_one_sentence() -> None:
    assert len({clause.name for clause in CLAUSES}) == len(CLAUSES)
    assert not [clause.name for clause in CLAUSES if not clause.rule.endswith(".") or len(clause.rule) > 130]


def test_every_capability_has_a_clause_of_its_own() -> None:
    assert set(SHOWN_BY) == {flag for flag in Capability if flag}
