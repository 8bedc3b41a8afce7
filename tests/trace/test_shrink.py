"""The shrinker keeps the identity exactly and ends where no single change is left."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Idle, Prefill, Prepare, Submit, Verify
from specfuzz.core.notation import format_events, parse_events
from specfuzz.core.trace import TraceStep
from specfuzz.core.verdict import Identity
from specfuzz.errors import EngineFault, TraceError
from specfuzz.session import Session
from specfuzz.trace import Ran, Shrunk, lowering, session_run, shrink_events, shrink_trace
from tests.trace.strategies import events as any_event
from tests.trace.strategies import few_rids, small
from tests.trace.toy import ORACLES, ToySystem

NOISE = (
    "submit(req-1,9,12,3) submit(req-2,7,9) prefill(req-1) submit(req-3,8,8) advance(forward,3) settle prepare "
    "verify(req-1=4) prefill(req-2) settle publish finish(req-2@5) settle prepare verify(req-1=2,req-2=3) settle "
    "evict(4) prepare verify(req-2=4) abort(req-3) settle retract(req-1) settle idle prefill(req-1) settle prepare "
    "verify(req-1=3) retract(req-2) settle retract(req-1) submit(req-4,7,9) prefill(req-4) retract(req-4) settle idle"
)
BIG = EngineConfig(page_size=4, num_pages=200, max_reqs=8, mixed_chunk=True, chunked_prefill=True)


def shrunk_toy(*bugs: str, text: str = NOISE, config: EngineConfig = BIG) -> Shrunk:
    return shrink_events(config, parse_events(text), session_run(ToySystem(*bugs), ORACLES))


def as_pure(identity: Identity, wanted) -> object:
    """A run without a system: it ends in the identity as soon as `wanted(config, events so far)`."""

    def run(config: EngineConfig, events: tuple[Event, ...]) -> Ran:
        for end in range(len(events) + 1):
            if wanted(config, events[:end]):
                return Ran(identity=identity, steps=tuple(TraceStep(event=e) for e in events[:end]))
        return Ran(identity=None, steps=tuple(TraceStep(event=e) for e in events))

    return run


A = Identity("a-rule", "scheduler", "steady")


def test_a_leak_shrinks_to_its_three_events() -> None:
    result = shrunk_toy("leak")
    assert format_events(result.events) == "submit(a,2,1) prefill(a) retract(a)"
    assert result.minimal and result.repeatable and result.before > 10
    off = {"overlap": True, "page_size": 1, "radix": False, "spec_steps": 1, "draft_token_num": 2}
    assert result.config == EngineConfig(**off)  # without overlap a retraction can't come before the settle


def test_a_late_result_shrinks_to_its_cause() -> None:
    result = shrunk_toy("late")
    assert format_events(result.events) == "submit(a,2,1) prefill(a) retract(a) settle"


def test_an_accept_length_falls_to_the_least_that_shows_the_bug() -> None:
    result = shrunk_toy("long")
    # One token of the prefill, three accepted, one that the bug adds: with a lower cap it ends in another phase.
    assert format_events(result.events) == "submit(a,2,6) prefill(a) settle prepare verify(a=3) settle"
    assert result.config.spec_steps == 2 and not result.config.overlap


@pytest.mark.parametrize("bug", ["leak", "late", "long"])
def test_shrinking_again_changes_nothing(bug: str) -> None:
    once = shrunk_toy(bug)
    twice = shrink_events(once.config, once.events, session_run(ToySystem(bug), ORACLES))
    assert (twice.config, twice.steps) == (once.config, once.steps) and twice.minimal


def simpler_forms(config: EngineConfig, events: tuple[Event, ...]) -> Iterator[tuple[EngineConfig, tuple[Event, ...]]]:
    """Independently of the shrinker's order: every removal of one or two events and every lower argument or setting."""
    for size in (1, 2):
        for gone in combinations(range(len(events)), size):
            yield config, tuple(event for index, event in enumerate(events) if index not in gone)
    for index, event in enumerate(events):
        if isinstance(event, Verify):
            for at, (rid, run) in enumerate(event.accept):
                for lower in range(run):
                    pair = ((rid, lower),) if lower else ()
                    form = Verify((*event.accept[:at], *pair, *event.accept[at + 1 :]))
                    yield config, (*events[:index], form, *events[index + 1 :])
        for name, least in lowering.LEAST.get(type(event), {}).items():
            for value in range(least, getattr(event, name)):
                yield config, (*events[:index], lowering.set_number(event, name, value), *events[index + 1 :])
    for axis in lowering.AXES:
        for other in lowering.simpler_configs(config, axis):
            yield other, events


@pytest.mark.parametrize("bug", ["leak", "late", "long"])
def test_no_event_can_go_and_no_argument_can_fall(bug: str) -> None:
    result, run = shrunk_toy(bug), session_run(ToySystem(bug), ORACLES)
    left = [
        format_events(events)
        for config, events in simpler_forms(result.config, result.events)
        if run(config, events).identity == result.identity
    ]
    assert not left


def test_a_shrink_never_slides_into_another_bug() -> None:
    """Both bugs are there, and `leak` has the shorter trace; each shrink ends in the one that it began with."""
    text = "submit(x,4,9) prefill(x) settle submit(y,4,9) prepare verify(x=3) prefill(y) settle settle retract(x)"
    result = shrunk_toy("leak", "long", text=text)
    assert result.identity.oracle == "output-is-emitted"
    assert "retract" not in format_events(result.events)
    assert shrunk_toy("leak", "long", text=text.replace("=3", "=2")).identity.oracle == "pages-conserved"


def test_the_phase_belongs_to_the_identity() -> None:
    def run(config: EngineConfig, events: tuple[Event, ...]) -> Ran:
        steps = tuple(TraceStep(event=event) for event in events)
        phase = "idle" if Idle() in events else "steady"
        return Ran(identity=Identity("r", "o", phase) if events else None, steps=steps)

    result = shrink_events(EngineConfig(), parse_events("prepare idle settle"), run)
    assert format_events(result.events) == "idle"


def test_an_engine_fault_shrinks_like_a_violation() -> None:
    text = "submit(x,4,9) prefill(x) settle prepare verify submit(y,4,9) prefill(y) abort(y)"
    result = shrunk_toy("crash", text=text)
    assert result.identity == ("engine-fault", "engine", "exception") and len(result.events) <= 6
    assert result.minimal


def test_events_that_do_not_show_the_violation_are_refused() -> None:
    with pytest.raises(TraceError, match="nothing to shrink: the events show no violation"):
        shrunk_toy()
    with pytest.raises(TraceError, match="not a-rule/scheduler/steady"):
        shrink_events(BIG, parse_events(NOISE), session_run(ToySystem("leak"), ORACLES), A)


def test_a_spent_budget_says_that_the_result_is_not_minimal() -> None:
    run = session_run(ToySystem("leak"), ORACLES)
    few = shrink_events(BIG, parse_events(NOISE), run, max_tries=5)
    assert not few.minimal and few.tries == 5 and few.identity.oracle == "pages-conserved"
    calls = iter(range(1000))
    assert not shrink_events(BIG, parse_events(NOISE), run, stop=lambda: next(calls) > 10).minimal


def test_no_candidate_is_run_twice() -> None:
    seen: list[object] = []
    run = session_run(ToySystem("late"), ORACLES)

    def counted(config: EngineConfig, events: tuple[Event, ...]) -> Ran:
        seen.append((config, events))
        return run(config, events)

    result = shrink_events(BIG, parse_events(NOISE), counted)
    assert result.tries == len(seen) - 1  # the last run, which asks whether the result repeats, is not a try
    assert len(set(seen[:-1])) == len(seen) - 1


def test_a_run_that_can_not_be_repeated_is_said_so() -> None:
    calls = iter(range(10_000))
    names = Identity("r", "o", "p")

    def run(config: EngineConfig, events: tuple[Event, ...]) -> Ran:
        return Ran(identity=names if next(calls) == 0 else None, steps=tuple(TraceStep(event=e) for e in events))

    assert not shrink_events(EngineConfig(), parse_events("idle"), run).repeatable


def test_a_shared_value_falls_in_all_events_together() -> None:
    """Two prompts of one length: neither can fall alone."""

    def equal(config: EngineConfig, events: tuple[Event, ...]) -> bool:
        lens = [event.prompt_len for event in events if isinstance(event, Submit)]
        return len(lens) == 2 and lens[0] == lens[1]

    result = shrink_events(EngineConfig(), parse_events("submit(x,19,4) submit(y,19,7)"), as_pure(A, equal))
    assert format_events(result.events) == "submit(a,2,1) submit(b,2,1)"


def test_a_name_that_belongs_to_the_bug_stays() -> None:
    def picky(config: EngineConfig, events: tuple[Event, ...]) -> bool:
        return {"zed", "b"} <= {event.rid for event in events if isinstance(event, Prefill)}

    text = "prefill(other) prefill(b) prefill(zed)"
    result = shrink_events(EngineConfig(), parse_events(text), as_pure(A, picky))
    assert format_events(result.events) == "prefill(b) prefill(zed)"


def test_a_pair_that_only_goes_together_goes() -> None:
    def balanced(config: EngineConfig, events: tuple[Event, ...]) -> bool:
        kinds = [type(event) for event in events]
        return kinds[-1:] == [Idle] and kinds.count(Prepare) == kinds.count(Verify)

    result = shrink_events(EngineConfig(), parse_events("prepare verify verify prepare idle"), as_pure(A, balanced))
    assert format_events(result.events) == "idle"


def test_an_idle_becomes_the_settle_that_the_bug_needs() -> None:
    result = shrunk_toy("late", text="submit(x,4,9) prefill(x) retract(x) idle")
    assert format_events(result.events) == "submit(a,2,1) prefill(a) retract(a) settle"


def test_a_small_pool_that_the_bug_needs_gets_as_small_as_it_can() -> None:
    def tight(config: EngineConfig, events: tuple[Event, ...]) -> bool:
        return bool(events) and config.num_pages <= 40

    result = shrink_events(EngineConfig(num_pages=37), parse_events("idle"), as_pure(A, tight))
    assert result.config.num_pages == 6  # the least that fits two draft tokens
    loose = shrink_events(EngineConfig(num_pages=37), parse_events("idle"), as_pure(A, lambda c, e: bool(e)))
    assert loose.config.num_pages == EngineConfig().num_pages


def test_a_shrunk_trace_keeps_its_header() -> None:
    session = Session(ToySystem("leak"), BIG, ORACLES)
    for event in parse_events(NOISE):
        session.step(event)
    trace = session.trace(seed=7, note="found at night")
    smaller, shrunk = shrink_trace(trace, ToySystem("leak"), ORACLES)
    assert (smaller.expected, smaller.seed, smaller.note) == (trace.expected, 7, "found at night")
    assert len(smaller.steps) == 3 and smaller.steps == shrunk.steps


@settings(max_examples=30)
@given(st.lists(any_event(few_rids, small), min_size=5, max_size=40), st.sampled_from(["leak", "late", "long"]))
def test_any_failing_run_shrinks_to_a_fixpoint(events: list[Event], bug: str) -> None:
    run = session_run(ToySystem(bug), ORACLES)
    if run(BIG, tuple(events)).identity is None:
        events = [*parse_events("idle submit(x,7,9,2) prefill(x) settle prepare verify(x=4) settle submit(y,7,9)"),
                  *parse_events("prefill(y) retract(y) settle"), *events]  # fmt: skip
    once = shrink_events(BIG, events, run)
    twice = shrink_events(once.config, once.events, run)
    assert once.minimal and once.repeatable
    assert (twice.config, twice.steps) == (once.config, once.steps)


def test_an_engine_that_does_not_start_shows_nothing_to_shrink() -> None:
    class HangsAtStart(ToySystem):
        def reset(self, config: EngineConfig) -> None:
            raise EngineFault("no answer within 3 seconds", kind="hang")

    with pytest.raises(TraceError, match="fails before the first event: no answer within 3 seconds"):
        shrink_events(BIG, parse_events(NOISE), session_run(HangsAtStart(), ORACLES))
