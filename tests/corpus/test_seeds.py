"""The seed traces of this repository: they hold, they reach every goal that can be reached, and they kill.

When the engine or a goal has changed, `specfuzz corpus seeds --write` makes them anew.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from specfuzz.campaign.covers import Factors, covering_configs
from specfuzz.campaign.seeding import reached_by, unreachable_goals
from specfuzz.cli.smoke import MOST_SEEDS
from specfuzz.core.oracle import ORACLES, REACHABLE
from specfuzz.core.trace import Trace
from specfuzz.reference.algorithms import ALGORITHMS
from specfuzz.systems.reference import ReferenceSystem
from specfuzz.trace import replay_trace
from specfuzz.trace.seeds import SeedStore
from tests.cli.command import specfuzz

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
SEEDS = {entry.path.name: entry.trace for entry in SeedStore(CORPUS).load().entries}
GOAL_SEEDS = {entry.path.name: entry.trace for entry in SeedStore(CORPUS).load("goals").entries}


@cache
def reached(name: str) -> frozenset[str]:
    return reached_by(ReferenceSystem(), SEEDS[name], tuple(REACHABLE))


def test_every_seed_can_be_read_and_they_are_few() -> None:
    assert not SeedStore(CORPUS).load().problems
    assert 0 < len(GOAL_SEEDS) < len(SEEDS) <= MOST_SEEDS


@pytest.mark.parametrize("name", SEEDS)
def test_a_seed_holds_along_the_recorded_way(name: str) -> None:
    trace: Trace = SEEDS[name]
    replay = replay_trace(trace, ReferenceSystem(), tuple(ORACLES))
    assert trace.expected is None and replay.came_about, replay.divergence or replay.got
    assert trace.note == f"reaches {', '.join(sorted(reached(name)))}"


def test_the_seeds_of_goals_reach_every_goal_that_some_configuration_can_reach() -> None:
    configs = covering_configs(Factors(algorithms=ALGORITHMS.names()))
    beyond = unreachable_goals(ReferenceSystem(), configs, tuple(REACHABLE))
    together = frozenset().union(*(reached(name) for name in GOAL_SEEDS))
    assert set(REACHABLE.names()) - together == set(beyond)


@pytest.mark.parametrize("name", GOAL_SEEDS)
def test_no_seed_of_goals_is_superfluous(name: str) -> None:
    others = frozenset().union(*(reached(other) for other in GOAL_SEEDS if other != name))
    assert reached(name) - others


@pytest.mark.slow
def test_the_pool_kills_nearly_every_mutant_in_seconds() -> None:
    data = specfuzz("mutants", "--smoke", "--pool", CORPUS, "--jobs", 1, "--json").json
    assert data["share"] >= 0.95 and data["verdict"] == "holds" and not data["spoilt"], data["survivors"]
    assert data["pool"] == len(SEEDS)
