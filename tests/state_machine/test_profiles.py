"""The fuzzer's own profiles."""

from __future__ import annotations

import pytest
from hypothesis import Phase

from specfuzz.errors import UnknownName
from specfuzz.state_machine import PROFILES, machine_settings
from specfuzz.state_machine.profiles import profile_of


def test_there_are_three_profiles() -> None:
    assert set(PROFILES) == {"dev", "ci", "nightly"}


@pytest.mark.parametrize("name", PROFILES)
def test_no_profile_has_a_database_or_shrinks_choices(name: str) -> None:
    made = machine_settings(PROFILES[name])
    assert made.database is None
    assert made.phases == (Phase.generate,)


def test_only_ci_is_derandomised() -> None:
    assert [name for name, profile in PROFILES.items() if machine_settings(profile).derandomize] == ["ci"]


def test_steps_are_events_and_settings_can_be_changed() -> None:
    made = machine_settings(PROFILES["dev"], max_examples=7)
    assert (made.max_examples, made.stateful_step_count) == (7, PROFILES["dev"].steps + 1)


def test_an_unknown_profile_is_told_with_the_closest_one() -> None:
    with pytest.raises(UnknownName, match="nightly"):
        profile_of("nighly")
