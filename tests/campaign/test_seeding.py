"""Seeds: a greedy cover of goals that a clean system reaches, shrunk, and the same for everybody."""

from __future__ import annotations

from typing import Any

import pytest

from specfuzz.campaign.bare import BareSystem
from specfuzz.campaign.seeding import SeedPlan, Seeds, make_seeds, reached_by, unreachable_goals
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Abort, Retract, Verify
from specfuzz.core.oracle import Reachable
from specfuzz.errors import ConfigError, EngineFault
from tests.campaign.fakes import NO_RETRACTION, RETRACT_IS_HONEST, Crashing, OnlyPageOne

PLAIN = EngineConfig()
CONFIGS = (PLAIN, PLAIN.with_(page_size=4), PLAIN.with_(overlap=False))


def goal(name: str, kind: type, needs: Capability = Capability.NONE) -> Reachable:
    return Reachable(name=name, reached=lambda step: isinstance(step.event, kind), needs=needs)


GOALS = (goal("verify", Verify), goal("retract", Retract), goal("abort", Abort))


def seeds(**changes: Any) -> Seeds:
    fields: dict[str, Any] = {
        "system": BareSystem(), "configs": CONFIGS, "oracles": (RETRACT_IS_HONEST,), "goals": GOALS, "examples": 6,
    }  # fmt: skip
    return make_seeds(SeedPlan(**{**fields, **changes}))


def test_the_goals_are_reached_by_few_short_seeds_that_say_what_for() -> None:
    made = seeds()
    assert made.unreached == made.unreachable == ()
    (seed,) = made.goals
    assert reached_by(BareSystem(), seed, GOALS) == {"verify", "retract", "abort"}
    assert seed.note == "reaches abort, retract, verify" and seed.expected is None
    assert [type(event).__name__ for event in seed.events].count("Verify") == 1 and len(seed.steps) <= 10


def test_situations_meet_every_goal_in_every_kind_of_loop_and_page() -> None:
    made = seeds()
    met = {
        (name, trace.config.overlap, trace.config.page_size > 1)
        for trace in (*made.goals, *made.situations)
        for name in reached_by(BareSystem(), trace, GOALS)
    }
    assert made.missed == 0 and len(met) == len(GOALS) * len(CONFIGS)


def test_the_cover_ends_at_the_most_seeds_and_counts_what_it_leaves_out() -> None:
    made = seeds(most=1)
    assert len(made.goals) == 1 and not made.situations and made.missed > 0


def test_the_same_seed_makes_the_same_seeds_and_another_one_others() -> None:
    one, again, other = seeds(), seeds(), seeds(seed=2)
    assert (one.goals, one.situations) == (again.goals, again.situations)
    assert one.situations != other.situations


def test_a_goal_beyond_every_configuration_is_told_from_one_that_was_not_met() -> None:
    rare = Reachable(name="never", reached=lambda step: False)
    made = seeds(goals=(*GOALS, rare, goal("tree", Verify, Capability.TREE)))
    assert made.unreached == ("never",) and made.unreachable == ("tree",)


def test_configurations_that_the_system_refuses_are_left_out() -> None:
    made = seeds(system=OnlyPageOne())
    assert {trace.config.page_size for trace in (*made.goals, *made.situations)} == {1}
    assert unreachable_goals(OnlyPageOne(), CONFIGS, [goal("paged", Verify, Capability.PAGED)]) == ["paged"]
    with pytest.raises(ConfigError, match="`page_size`=4"):
        seeds(system=OnlyPageOne(), configs=CONFIGS[1:2])


def test_a_system_that_is_not_clean_gets_no_seeds() -> None:
    with pytest.raises(EngineFault, match="nothing-is-retracted"):
        seeds(oracles=(NO_RETRACTION,))
    with pytest.raises(EngineFault, match="KeyError"):
        seeds(system=Crashing())
