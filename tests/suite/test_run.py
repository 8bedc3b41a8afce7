"""`run`: a scenario in one line, and what may be claimed of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specfuzz.campaign.bare import BareSystem
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Prepare, Settle
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.errors import ConfigError, NotationError, UnknownName, UsageError
from specfuzz.suite.run import run
from specfuzz.suite.totals import CURRENT, Totals
from specfuzz.systems.reference import ReferenceSystem

ROUND = "submit(a,4,3) prefill(a) settle prepare verify(a=2) settle"
RESERVE = "submit(a,2,2) prefill(a) prepare"
BUG, ORACLE = "mutated:reserve-1x", "reserve-covers-two-rounds"


def claim(result: Any, *names: str) -> str:
    with pytest.raises(AssertionError) as caught:
        result.must_hold(*names)
    return str(caught.value)


def test_a_scenario_that_holds_says_so_and_shows_its_last_state() -> None:
    result = run("reference", ROUND).must_hold().must_hold("commit-equals-emitted")
    assert result.state is not None and result.state.reqs["a"].kv_committed_len == 4 + 2
    assert not result.skipped and result.violated == ()


def test_a_violation_is_an_assertion_error_with_the_whole_report() -> None:
    text = claim(run(BUG, RESERVE), ORACLE)
    assert text.startswith(f"VIOLATED {ORACLE} [host, scheduler, extending]")
    assert "3 events   submit(a,2,2) prefill(a) prepare" in text and "request a" in text
    assert f"replay     specfuzz replay --system {BUG} 'submit(a,2,2) prefill(a) prepare'" in text


def test_must_violate_is_content_with_the_violation() -> None:
    result = run(BUG, RESERVE).must_violate(ORACLE)
    assert result.violated[0] == ORACLE


def test_must_violate_tells_what_was_violated_instead() -> None:
    with pytest.raises(AssertionError, match="`ledger-in-order` was not violated: it held") as caught:
        run(BUG, RESERVE).must_violate("ledger-in-order")
    assert f"Violated: `{ORACLE}`" in str(caught.value) and "request a" in str(caught.value)


def test_a_scenario_goes_on_behind_a_violation() -> None:
    result = run(BUG, f"{RESERVE} verify(a=2) settle settle idle")
    assert result.violated[0] == ORACLE and not result.skipped
    result.must_hold("output-is-plain-decoding")  # which had something to judge only at the end


def test_an_event_that_is_not_legal_spoils_the_claim() -> None:
    text = claim(run("reference", "submit(a,4,3) settle prefill(a)"))
    assert text.startswith("event 1 `settle` was not legal there")


def test_an_oracle_without_anything_to_judge_spoils_the_claim() -> None:
    text = claim(run("reference", "submit(a,4,3)"), "draft-kv-is-true")
    assert "nothing can be said: `draft-kv-is-true` had nothing to judge" in text


def test_fields_of_a_dict_change_the_defaults() -> None:
    result = run("reference", ROUND, {"page_size": 16, "spec_steps": 1, "overlap": False})
    assert result.config == EngineConfig(page_size=16, spec_steps=1, draft_token_num=2, overlap=False)


def test_oracles_judge_by_name() -> None:
    result = run(BUG, RESERVE, oracles=["ledger-in-order"]).must_hold()
    with pytest.raises(UsageError, match=f"`{ORACLE}` was not asked to judge this run"):
        result.must_hold(ORACLE)


class Failing(ReferenceSystem):
    def apply(self, event: Event) -> Receipt:
        if isinstance(event, Prepare):
            raise ZeroDivisionError("division by zero")
        return super().apply(event)


def test_what_an_engine_raises_spoils_every_claim_but_its_own() -> None:
    result = run(Failing, ROUND)
    text = claim(result)
    assert "engine-fault" in text and "ZeroDivisionError: division by zero (test_run.py:" in text
    assert result.must_violate("engine-fault").fault is not None


class Empty(ReferenceSystem):
    """Prepares a batch of nobody, as a snapshot says."""

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        return replace(seen, reqs={}) if seen.prepared else seen


def test_an_oracle_that_can_not_read_a_snapshot_spoils_every_claim_of_it() -> None:
    events, name = "submit(a,4,3) prefill(a) settle prepare", "no-dead-row-launched"
    result = run(Empty, events, oracles=[name, "ledger-in-order"]).must_violate("oracle-fault")
    assert f"VIOLATED oracle-fault [host, recorder, keyerror-in-{name}]" in claim(result)
    assert "KeyError: 'a' at `req = step.after.reqs[rid]`" in claim(result, name)
    result.must_hold("ledger-in-order")


class Stillborn(BareSystem):
    name = "stillborn"

    def reset(self, config: EngineConfig) -> None:
        raise OSError("no device")


def test_an_engine_that_does_not_start_is_a_fault_too() -> None:
    result = run(Stillborn, ROUND)
    assert result.state is None and "OSError: no device" in claim(result)


class Untidy(BareSystem):
    closed = 0

    def close(self) -> None:
        Untidy.closed += 1


def test_what_a_callable_made_is_closed_and_an_object_is_not() -> None:
    mine = Untidy()
    run(mine, "submit(a,1,1)")
    assert Untidy.closed == 0
    run(Untidy, "submit(a,1,1)")
    assert Untidy.closed == 1


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("reference", ""), NotationError, "no events"),
        (("reference", "sumbit(a,1,1)"), NotationError, "there is no event `sumbit`"),
        (("referenze", ROUND), UnknownName, "Did you mean `reference`"),
        (("mutated:reserve-2x", ROUND), UnknownName, "Did you mean `reserve-1x`"),
        (("reference", ROUND, {"pagesize": 4}), ConfigError, "no field `pagesize`; fields: algorithm"),
        (("reference", ROUND, {"page_size": "4"}), ConfigError, "`page_size`='4' is not an integer"),
        (("reference", ROUND, {"page_size": 3}), ConfigError, "`page_size`=3 is not one of"),
        (("reference", ROUND, "page_size=4"), ConfigError, "`config` is a `str`"),
        ((3, ROUND), UsageError, "no system: it has no `name`"),
        ((object, ROUND), UsageError, "`object` made a `object`, which is no system"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: tuple[Any, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        run(*arguments)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_misspelt_claim_names_what_was_meant() -> None:
    with pytest.raises(UnknownName, match=f"Did you mean `{ORACLE}`"):
        run("reference", RESERVE).must_hold("reserve-covers-two-round")


def test_events_may_be_given_as_events() -> None:
    assert run("reference", [Settle()]).skipped == (0,)


def test_scenarios_count_in_a_session() -> None:
    totals = Totals()
    token = CURRENT.set(totals)
    try:
        run("reference", RESERVE)
    finally:
        CURRENT.reset(token)
    assert (totals.tests, totals.events) == (1, 3) and totals.applied[ORACLE] > 0
