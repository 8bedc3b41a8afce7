"""Every oracle holds on a right world, is violated by a wrong one, and is silent where it doesn't apply."""

from __future__ import annotations

import pytest

from specfuzz.core.capability import OBSERVATIONS, Capability
from specfuzz.core.clock import Scope
from specfuzz.core.event import Idle
from specfuzz.core.judge import Tally
from specfuzz.core.oracle import ORACLES, REACHABLE, Oracle
from specfuzz.core.verdict import Violation
from specfuzz.oracles.implications import IMPLICATIONS, implied_by, roots_first
from tests.oracles import (
    rows_chunks,
    rows_content,
    rows_device,
    rows_grammar,
    rows_liveness,
    rows_memory,
    rows_pools,
    rows_requests,
    rows_results,
    rows_sampling,
    rows_scheduler,
    rows_tree,
    rows_twins,
)
from tests.oracles.build import EAGLE, reached, req, step, verdict
from tests.oracles.rows import Rows

TABLES: dict[str, Rows] = (
    rows_scheduler.ROWS
    | rows_requests.ROWS
    | rows_results.ROWS
    | rows_device.ROWS
    | rows_pools.ROWS
    | rows_content.ROWS
    | rows_chunks.ROWS
    | rows_liveness.ROWS
    | rows_memory.ROWS
    | rows_tree.ROWS
    | rows_grammar.ROWS
    | rows_sampling.ROWS
)
GOALS = (
    rows_twins.GOALS
    | rows_chunks.GOALS
    | rows_liveness.GOALS
    | rows_memory.GOALS
    | rows_tree.GOALS
    | rows_grammar.GOALS
)
NAMES = sorted(TABLES)


def test_no_oracle_lacks_a_table_and_no_table_an_oracle() -> None:
    assert set(ORACLES.names()) == set(TABLES)


def test_no_goal_lacks_a_table_and_no_table_a_goal() -> None:
    assert set(REACHABLE.names()) == set(GOALS)


@pytest.mark.parametrize("name", NAMES)
def test_it_holds_on_a_right_world(name: str) -> None:
    for row in TABLES[name].holds:
        assert verdict(name, row()) == "holds"


@pytest.mark.parametrize("name", NAMES)
def test_it_is_violated_by_a_wrong_world(name: str) -> None:
    for row in TABLES[name].broken:
        assert verdict(name, row()) == "violated"


@pytest.mark.parametrize("name", NAMES)
def test_it_is_silent_where_it_does_not_apply(name: str) -> None:
    for row in TABLES[name].silent:
        assert verdict(name, row()) == "silent"


@pytest.mark.parametrize("name", NAMES)
def test_its_clash_says_values_and_two_facts(name: str) -> None:
    row = TABLES[name].broken[0]()
    found = Tally().panel([ORACLES.get(name)], [], row.capabilities).judge(row)
    assert all(one.values and one.fact and one.counterfact and one.fact != one.counterfact for one in found)


@pytest.mark.parametrize("name", sorted(GOALS))
def test_a_goal_is_reached_by_one_step_and_not_by_another(name: str) -> None:
    there, elsewhere = GOALS[name]
    assert reached(name, there())
    assert not reached(name, elsewhere())


# --------------------------------------------------------------------------------------------------- declarations


@pytest.mark.parametrize("oracle", list(ORACLES), ids=lambda oracle: oracle.name)
def test_a_declaration_is_complete(oracle: Oracle) -> None:
    assert oracle.twin in REACHABLE
    assert "sglang 0.5.23 " in oracle.source
    assert oracle.doc.endswith(".")


VIEWS = {
    Capability.DEVICE_VIEW: "device",
    Capability.RELAY_VIEW: "relay",
    Capability.WRITE_RECORDS: "writes",
    Capability.RACE_CHECK: "races",
    Capability.METRICS_VIEW: "metrics",
}
SEEING = [(o, flag) for o in ORACLES for flag in VIEWS if flag in o.needs and o.scope in (Scope.RUN, Scope.REQUEST)]


@pytest.mark.parametrize(("oracle", "flag"), SEEING, ids=lambda x: getattr(x, "name", None))
def test_a_missing_view_is_no_pass(oracle: Oracle, flag: Capability) -> None:
    row = TABLES[oracle.name].holds[0]()
    blind = {field: getattr(row.after, field) for field in row.after.__slots__} | {VIEWS[flag]: None}
    row.after = type(row.after)(**blind)
    assert verdict(oracle.name, row) == "unknown"


@pytest.mark.parametrize("oracle", [o for o in ORACLES if o.needs & OBSERVATIONS], ids=lambda oracle: oracle.name)
def test_an_engine_that_shows_nothing_makes_it_unknown_or_silent(oracle: Oracle) -> None:
    tally = Tally()
    row = TABLES[oracle.name].broken[0]()
    row.capabilities &= ~OBSERVATIONS
    found = tally.panel([oracle], [], row.capabilities).judge(row)
    assert not found
    assert not tally.of(oracle.name).applied


# --------------------------------------------------------------------------------------------------- implications


def violation(oracle: str) -> Violation:
    return Violation(
        oracle=oracle, owner="x", clock="host", phase="steady", formula="f", values="v", fact="a", counterfact="b",
        source="s", event_index=0,
    )  # fmt: skip


def test_implications_name_oracles_only() -> None:
    named = set(IMPLICATIONS) | {implied for many in IMPLICATIONS.values() for implied in many}
    assert named <= set(ORACLES.names())


def test_implications_follow_one_direction() -> None:
    assert not [name for name in IMPLICATIONS if any(name in implied_by(other) for other in implied_by(name))]


def test_the_root_is_named_first() -> None:
    found = [violation(n) for n in ("output-is-plain-decoding", "target-kv-is-true", "window-follows-the-row")]
    assert roots_first(found)[0].oracle == "window-follows-the-row"


def test_unrelated_violations_keep_their_order() -> None:
    found = [violation(n) for n in ("queue-depth", "clocks-tick-once")]
    assert roots_first(found) == found


def test_a_world_without_requests_breaks_nothing() -> None:
    row = step(Idle(), (), (), config=EAGLE, relay=None)
    assert [name for name in NAMES if verdict(name, row) == "violated"] == []


def test_a_steady_world_breaks_nothing() -> None:
    row = step(Idle(), (req(),), (req(),))
    assert [name for name in NAMES if verdict(name, row) == "violated"] == []
