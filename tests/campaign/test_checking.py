"""What a stored trace owes: it ends as its header says, along the recorded way, and holds on the clean engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from specfuzz.campaign.bare import BareSystem
from specfuzz.campaign.baseline import Baseline, Known
from specfuzz.campaign.checking import Checked, check_corpus
from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import Oracle
from specfuzz.core.port import System
from specfuzz.core.receipt import Receipt
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.core.verdict import Identity
from specfuzz.errors import MissingPart, UnknownName
from specfuzz.trace.store import Stored
from tests.campaign.fakes import NO_STOP, RETRACT_IS_HONEST, Mutated

BUG = Identity("retract-is-honest", "scheduler", "after-event")
STEPS = tuple(
    TraceStep(event=event)
    for event in parse_events("submit(a,2,9) submit(b,2,9) prefill(a) settle prefill(b) settle retract(b)")
)
FAILING = Trace(config=EngineConfig(), steps=STEPS, system="mutated:silent-retract", expected=BUG)
HOLDING = Trace(config=EngineConfig(), steps=STEPS, system="reference")
OPENED: list[str] = []


def open_named(spec: str) -> System:
    OPENED.append(spec)
    if spec == "sglang":
        raise MissingPart("SGLang is not here.")
    if spec == "mutated:gone":
        raise UnknownName("there is no mutant `gone`.")
    return Mutated() if spec == "mutated:silent-retract" else BareSystem()


def check(
    *traces: Trace, oracles: tuple[Oracle, ...] = (RETRACT_IS_HONEST,), baseline: Baseline | None = None
) -> list[Checked]:
    entries = [Stored(path=Path(f"{number}.jsonl"), trace=trace) for number, trace in enumerate(traces)]
    return list(check_corpus(entries, open_named, oracles, baseline))


def test_a_regression_fails_on_its_mutant_and_holds_on_the_clean_engine() -> None:
    failing, holding = check(FAILING, HOLDING)
    assert failing.passed and failing.because == f"{BUG} on mutated:silent-retract"
    assert holding.passed and holding.because == "holds on reference"


def test_a_mutant_that_no_longer_shows_is_found() -> None:
    (checked,) = check(replace(FAILING, steps=STEPS[:-1]))
    assert checked.passed is False and f"expected {BUG}, got nothing that any oracle could judge" in checked.because


def test_a_clean_engine_that_fails_as_well_is_found() -> None:
    stops = tuple(
        TraceStep(event=event)
        for event in parse_events("submit(a,2,9) prefill(a) settle finish(a@1) prepare verify settle")
    )
    both = replace(FAILING, steps=stops, expected=Identity("nothing-stops", "scheduler", "after-event"))
    (checked,) = check(both, oracles=(NO_STOP,))
    assert checked.passed is False and "on the clean reference: expected holds, got nothing-stops" in checked.because


STOP = Identity("nothing-stops", "scheduler", "after-event")
STOPPING = Trace(
    config=EngineConfig(), system="bare", expected=STOP,
    steps=tuple(
        TraceStep(event=event, receipt=Receipt(evicted=9))  # as the engine was then
        for event in parse_events("submit(a,2,9) prefill(a) settle finish(a@1) prepare verify settle")
    ),
)  # fmt: skip


def test_a_bug_that_nobody_planted_is_wrong_as_long_as_it_is_there() -> None:
    (checked,) = check(STOPPING, oracles=(NO_STOP,))
    assert checked.passed is False and checked.because == f"on bare: expected holds, got {STOP}"


def test_a_bug_that_nobody_planted_and_that_is_fixed_holds_in_any_way() -> None:
    (checked,) = check(replace(STOPPING, steps=(*STOPPING.steps[:3], *STEPS[1:2])), oracles=(NO_STOP,))
    assert checked.passed and checked.because == "holds on bare"


def test_what_a_baseline_explains_is_known_and_passes() -> None:
    entry = Known(identity=STOP, system="bare", bounds=(), reason="it is meant so")
    (checked,) = check(STOPPING, oracles=(NO_STOP,), baseline=Baseline((entry,)))
    assert checked.passed and checked.known == "it is meant so" and "got nothing-stops" in checked.because


def test_no_baseline_explains_a_planted_bug_that_no_longer_shows() -> None:
    entry = Known(identity=BUG, system="mutated:silent-retract", bounds=(), reason="it is meant so")
    (checked,) = check(replace(FAILING, steps=STEPS[:-1]), baseline=Baseline((entry,)))
    assert checked.passed is False and checked.known is None


def test_another_way_than_the_recorded_one_is_found() -> None:
    lied = (replace(STEPS[0], receipt=Receipt(refused="no room")), *STEPS[1:])
    (checked,) = check(replace(HOLDING, steps=lied))
    assert checked.passed is False and "diverged at event 0" in checked.because


def test_what_needs_a_missing_engine_is_put_aside_and_what_has_gone_fails() -> None:
    aside, gone = check(replace(HOLDING, system="sglang"), replace(FAILING, system="mutated:gone"))
    assert (aside.passed, aside.because) == (None, "SGLang is not here.")
    assert (gone.passed, gone.because) == (False, "there is no mutant `gone`.")


def test_every_system_is_opened_once() -> None:
    OPENED.clear()
    check(FAILING, FAILING, HOLDING, replace(HOLDING, system="sglang"), replace(HOLDING, system="sglang"))
    assert sorted(OPENED) == ["mutated:silent-retract", "reference", "sglang"]
