"""`bench`: rows, their names, and that nothing is measured on a broken run."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import count

import pytest

from specfuzz.campaign.bare import BareSystem
from specfuzz.campaign.bench import BenchPlan, BenchReport, TimedSystem, bench_rows_of, clock_for, run_bench
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Submit
from specfuzz.errors import SpecfuzzError
from tests.campaign.fakes import NO_STOP, RETRACT_IS_HONEST

_ticks = count()
# Every look at this clock takes a second, so that no figure depends on the machine.
PLAN = BenchPlan(
    system=BareSystem(), oracles=(RETRACT_IS_HONEST,), slices=2, slice_examples=25, clock=lambda: float(next(_ticks))
)


@pytest.fixture(scope="module")
def report() -> BenchReport:
    return run_bench(PLAN)


def test_the_bare_machine_runs_as_fast_as_itself(report: BenchReport) -> None:
    rows = {row.name: row for row in report.rows}
    assert rows["checked events"].baseline == rows["bare events"].value
    assert rows["checked events"].ratio == pytest.approx(1)
    assert "cores" in report.machine


def test_the_measured_shape_is_the_promised_one(report: BenchReport) -> None:
    rows = {row.name: row.value for row in report.rows}
    assert rows["share verify"] >= 0.15 and rows["share settle"] >= 0.15
    assert 2 <= rows["live rows"] <= 4
    assert 0 <= rows["share engine"] + rows["share snapshot"] <= 1


def test_a_second_shape_is_measured_beside_the_first() -> None:
    tree = EngineConfig(topk=4, draft_token_num=8)
    report = run_bench(replace(PLAN, tree_config=tree, slices=1, slice_examples=10))
    rows = {row.name: row for row in report.rows}
    assert rows["checked events, topk 4"].ratio == pytest.approx(1)
    assert 0 < rows["rounds, topk 4"].value < rows["checked events, topk 4"].value


def test_a_broken_run_is_not_measured() -> None:
    with pytest.raises(SpecfuzzError, match="nothing-stops"):
        run_bench(BenchPlan(system=BareSystem(), oracles=(NO_STOP,)))


def test_another_system_is_measured_beside_its_own_step_cost() -> None:
    events, step = bench_rows_of(PLAN)
    assert (events.name, step.name) == ("bare events", "bare engine step")
    assert events.ratio is not None and 0 < events.ratio < 1


def test_only_apply_and_snapshot_are_timed() -> None:
    ticks = iter(range(100))
    timed = TimedSystem(BareSystem(), clock=lambda: float(next(ticks)))
    timed.reset(EngineConfig())
    timed.apply(Submit("a", 2, 1))
    timed.snapshot()
    assert (timed.apply_seconds, timed.snapshot_seconds) == (1, 1)


def test_a_system_that_may_live_in_another_process_is_measured_by_the_wall_clock() -> None:
    class Remote(BareSystem):
        name = "sglang:mutant=late-result"

    assert clock_for(Remote()) is time.perf_counter
    assert clock_for(BareSystem()) is time.process_time
