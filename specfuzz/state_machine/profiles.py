"""How long a run is and how wild: `dev` for the desk, `ci` derandomised, `nightly` long. No profile has a database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, settings

from specfuzz.core.registry import Registry
from specfuzz.state_machine.tempers import GENTLE, STRONG


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One profile. steps: events per example. swarm: factors by which an example favours or mutes a family.

    derandomize: the same examples in every run, unless a seed says otherwise.
    """

    name: str
    max_examples: int
    steps: int = 40
    swarm: tuple[int, ...] = GENTLE
    derandomize: bool = False


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(name="dev", max_examples=100),
        Profile(name="ci", max_examples=200, derandomize=True),
        Profile(name="nightly", max_examples=20_000, steps=80, swarm=STRONG),
    )
}


def machine_settings(profile: Profile, **changes: Any) -> settings:
    """Hypothesis settings of a profile; changes: settings that differ.

    Generation only: a failure is shrunk by its events (`trace.shrink`), never by Hypothesis' choices. One step more
    than events, because drawing the temper is a step. No deadline and no health checks: an engine takes its time.
    """
    wanted: dict[str, Any] = {
        "max_examples": profile.max_examples,
        "stateful_step_count": profile.steps + 1,
        "derandomize": profile.derandomize,
        "database": None,
        "deadline": None,
        "phases": (Phase.generate,),
        "suppress_health_check": list(HealthCheck),
        "verbosity": Verbosity.quiet,
    }
    return settings(**{**wanted, **changes})


def profile_of(name: str) -> Profile:
    """The profile of that name; raises UnknownName with the closest ones."""
    known: Registry[Profile] = Registry("profile")
    for profile in PROFILES.values():
        known.register(profile.name, profile)
    return known.get(name)
