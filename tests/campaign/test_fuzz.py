"""`fuzz`: budgets, counts, findings."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from specfuzz.campaign.bare import BareSystem
from specfuzz.campaign.covers import Factors, covering_configs
from specfuzz.campaign.fuzz import ROUND_EXAMPLES, FuzzPlan, FuzzReport, run_fuzz
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.receipt import Receipt
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity
from specfuzz.errors import ConfigError, EngineFault, MissingPart, TraceError
from tests.campaign.fakes import (
    NO_LARGE_EVICTION,
    NO_STOP,
    RETRACT_IS_HONEST,
    SETTLES,
    SILENT,
    Crashing,
    OnlyPageOne,
    Recording,
    Stillborn,
)

CONFIGS = (EngineConfig(), EngineConfig(overlap=False), EngineConfig(algorithm="NONE"))
STOPPED = Identity("nothing-stops", "scheduler", "after-event")


def fuzz(**changes: object) -> FuzzReport:
    fields = {
        "system": BareSystem(),
        "configs": CONFIGS,
        "oracles": (RETRACT_IS_HONEST,),
        "seed": 1,
        "max_examples": 30,
    }
    return run_fuzz(FuzzPlan(**{**fields, **changes}))


def traces(report: FuzzReport) -> list[Trace]:
    return [finding.found for finding in report.findings]


def test_the_budget_is_divided_over_the_configurations() -> None:
    lines: list[str] = []
    report = fuzz(max_examples=20, progress=lines.append)
    assert 20 <= report.examples <= 22  # Hypothesis may cut an example short and replace it
    assert [line.split(":")[0] for line in lines] == [config.label() for config in CONFIGS]
    assert report.events / report.examples > 35


def test_fewer_examples_than_configurations_are_possible() -> None:
    assert fuzz(configs=covering_configs(Factors()), max_examples=3).examples == 3


def test_it_counts_what_was_exercised() -> None:
    report = fuzz(oracles=(RETRACT_IS_HONEST, SILENT), goals=(SETTLES,))
    assert report.oracles["retract-is-honest"]["applied"] >= 5
    assert report.not_exercised == ("silent",)
    assert report.reached["settles"] > 100
    assert report.skipped == 0 and report.events_per_second > 0
    assert report.findings == () and report.compared == {}


def test_a_finding_ends_its_configuration_and_not_the_others() -> None:
    report = fuzz(oracles=(NO_STOP,), max_examples=150)
    (finding,) = report.findings
    assert finding.identity == STOPPED
    assert finding.times == len(CONFIGS)
    assert finding.trace.expected == STOPPED and finding.trace.seed == 1
    assert finding.violations[0].event_index == len(finding.trace.steps) - 1


def test_stop_at_first_ends_the_campaign() -> None:
    report = fuzz(oracles=(NO_STOP,), max_examples=150, stop_at_first=True)
    assert report.findings[0].times == 1
    assert report.examples == report.findings[0].examples < 60


def test_different_identities_are_different_findings() -> None:
    report = fuzz(oracles=(NO_STOP, NO_LARGE_EVICTION), configs=covering_configs(Factors()), max_examples=400)
    assert {finding.identity.oracle for finding in report.findings} == {"nothing-stops", "evictions-are-small"}


def test_the_seed_fixes_the_findings() -> None:
    first, again = (traces(fuzz(oracles=(NO_STOP,), max_examples=150)) for _ in range(2))
    assert first == again
    assert first != traces(fuzz(oracles=(NO_STOP,), max_examples=150, seed=2))


def test_one_configuration_is_fuzzed_alike_whatever_else_is_walked() -> None:
    alone = fuzz(oracles=(NO_STOP,), configs=CONFIGS[1:2], max_examples=ROUND_EXAMPLES)
    among = fuzz(oracles=(NO_STOP,), configs=CONFIGS[1:], max_examples=2 * ROUND_EXAMPLES)
    assert traces(alone) == traces(among)


def test_a_time_limit_cuts_and_repeats_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock ticks once per question."""

    def events_within(limit: float) -> list[Event]:
        ticks, system = count(), Recording()
        monkeypatch.setattr("specfuzz.campaign.fuzz.perf_counter", lambda: float(next(ticks)))
        fuzz(system=system, max_examples=None, max_time=limit, configs=CONFIGS[:2])
        return system.seen

    short, long = events_within(12.0), events_within(40.0)
    assert 300 < len(short) < len(long)
    assert short == long[: len(short)]


def test_a_campaign_without_any_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match="`max_examples` nor `max_time`"):
        fuzz(max_examples=None)


def test_a_fault_of_the_engine_is_a_finding() -> None:
    (finding,) = fuzz(system=Crashing(), max_examples=90).findings
    assert finding.identity == Identity("engine-fault", "engine", "exception")
    assert finding.fault == "KeyError: 3" and finding.violations == ()
    assert finding.trace.steps


def test_an_engine_that_does_not_start_is_a_finding_without_events() -> None:
    (finding,) = fuzz(system=Stillborn()).findings
    assert finding.identity == Identity("engine-fault", "engine", "crash")
    assert finding.trace.steps == () and finding.times == len(CONFIGS)


def test_configurations_that_the_system_refuses_are_left_out_with_the_reason() -> None:
    paged = EngineConfig(page_size=4)
    report = fuzz(system=OnlyPageOne(), configs=(*CONFIGS, paged))
    assert report.refused == ((paged, "`page_size`=4 is not supported here."),)
    with pytest.raises(ConfigError, match="page_size"):
        fuzz(system=OnlyPageOne(), configs=(paged,))


def test_every_finding_is_shrunk_once() -> None:
    calls: list[Trace] = []

    def shrink(trace: Trace, system: object, oracles: object) -> Trace:
        calls.append(trace)
        return Trace(config=trace.config, steps=trace.steps[:1], expected=trace.expected)

    (finding,) = fuzz(oracles=(NO_STOP,), max_examples=150, shrink=shrink).findings
    assert calls == [finding.found]
    assert len(finding.trace.steps) == 1


def after(calls: int) -> Callable[[], bool]:
    """Says yes from that question on."""
    ticks = count()
    return lambda: next(ticks) >= calls


def test_a_stop_ends_the_campaign_with_what_it_has() -> None:
    report = fuzz(oracles=(NO_STOP,), max_examples=30_000, configs=covering_configs(Factors()), stop=after(60))
    assert report.interrupted and report.examples < 100 and [f.identity for f in report.findings] == [STOPPED]
    assert not fuzz(max_examples=3).interrupted


def test_an_interrupt_loses_no_finding_whenever_it_comes() -> None:
    def interrupted(*_arguments: object) -> Trace:
        raise KeyboardInterrupt

    for report in (
        fuzz(oracles=(NO_STOP,), max_examples=150, shrink=interrupted),
        fuzz(
            oracles=(NO_STOP,), max_examples=150, progress=lambda line: interrupted() if "holds" not in line else None
        ),
        fuzz(system=Failing(KeyboardInterrupt()), oracles=(NO_STOP,), max_examples=3000),
    ):
        assert report.interrupted and report.error is None
    assert [f.identity for f in report.findings] == [STOPPED]


class Failing(BareSystem):
    """Works for a while, then its reset raises."""

    def __init__(self, error: BaseException, *, works: int = 6) -> None:
        self.error, self.left = error, works

    def reset(self, config: EngineConfig) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error
        super().reset(config)


def test_what_ends_a_campaign_early_takes_no_finding_along() -> None:
    report = fuzz(system=Failing(MissingPart("it is gone")), oracles=(NO_STOP,), max_examples=3000)
    assert report.error is not None and [f.identity for f in report.findings] == [STOPPED]
    with pytest.raises(MissingPart):
        fuzz(system=Failing(MissingPart("it was never here"), works=0))


def test_a_finding_that_can_not_be_shrunk_stays_as_it_was_found() -> None:
    def shrink(trace: Trace, system: object, oracles: object) -> Trace:
        raise TraceError("there is nothing to shrink: the events show no violation")

    report = fuzz(oracles=(NO_STOP,), max_examples=150, shrink=shrink)
    assert report.error is None and report.findings[0].trace == report.findings[0].found


def test_a_configuration_that_only_the_reset_refuses_is_left_out_too() -> None:
    class Picky(BareSystem):
        def reset(self, config: EngineConfig) -> None:
            if not config.overlap:
                raise ConfigError("`overlap`=False is not supported here.")
            super().reset(config)

    report = fuzz(system=Picky(), oracles=(NO_STOP,), max_examples=150)
    assert report.refused == ((CONFIGS[1], "`overlap`=False is not supported here."),) and len(report.findings) == 1
    with pytest.raises(ConfigError, match="overlap"):
        fuzz(system=Picky(), configs=CONFIGS[1:2])


class DiesOnce(BareSystem):
    """Raises at one event of its life; the same events go well when they are chosen again."""

    def __init__(self, error: BaseException, at: int) -> None:
        self.error, self.left = error, at

    def apply(self, event: Event) -> Receipt:
        self.left -= 1
        if not self.left:
            raise self.error
        return super().apply(event)


@pytest.mark.parametrize("at", [540, 1900, 2410])  # where Hypothesis has met the same choices before, and complains
def test_an_engine_that_dies_once_is_a_finding_wherever_it_is(at: int) -> None:
    died = EngineFault("the engine process ended with status -9", kind="crash")
    (finding,) = fuzz(system=DiesOnce(died, at), max_examples=120).findings
    assert finding.identity == Identity("engine-fault", "engine", "crash") and finding.trace.steps
    assert fuzz(system=DiesOnce(KeyboardInterrupt(), at), max_examples=120).interrupted
