"""`machine`: a base class that is one test. It replays what it found before, then fuzzes; any broken rule fails it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from specfuzz.core.config import EngineConfig
from specfuzz.errors import UsageError
from specfuzz.suite.configs import ConfigLike, checked, several_configs
from specfuzz.suite.systems import SystemLike, check_kind, name_of

if TYPE_CHECKING:
    from specfuzz.core.oracle import Oracle
    from specfuzz.state_machine import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a machine was told. config: one configuration, or the fields that are fixed in all. oracles: None = all.

    profile: None leaves it to the session.
    """

    system: SystemLike
    config: EngineConfig | dict[str, Any]
    oracles: tuple[str, ...] | None = None
    profile: Profile | None = None

    def chosen_oracles(self) -> tuple[Oracle, ...]:
        """The oracles to judge by; raises UnknownName. Asked when it runs: a suite may declare its own until then."""
        from specfuzz.core.oracle import ORACLES

        return tuple(ORACLES) if self.oracles is None else tuple(ORACLES.get(name) for name in self.oracles)

    def configs(self) -> tuple[EngineConfig, ...]:
        """The configurations to walk; raises ConfigError if nothing is left."""
        return several_configs(self.config)


class Machine:
    """Base of the classes that `machine` makes; pytest collects its subclasses and runs their one test."""

    plan: ClassVar[Plan]

    def test_holds(self, specfuzz_check: Callable[[Plan], None]) -> None:
        """Whatever the interleaving, no rule is broken."""
        specfuzz_check(self.plan)


def machine(
    system: SystemLike = "reference",
    config: ConfigLike = None,
    oracles: Sequence[str] | None = None,
    profile: str | Profile | None = None,
) -> type[Machine]:
    """A base class for `class TestMine(specfuzz.machine(...)): pass`, which is then one test, `TestMine::test_holds`.

    system: a name as for `--system`, an object that satisfies `specfuzz.System`, or a callable that makes one.
    config: an EngineConfig is run alone; a dict fixes its fields, and all others vary as in `specfuzz fuzz`.
    oracles: names; judge by these only, and each must have had something to judge. profile: `dev`, `ci`, `nightly` or a
    Profile; `--specfuzz-profile` overrides it.

    Raises ConfigError, UnknownName or UsageError for what can't be meant.
    """
    from specfuzz.state_machine import Profile
    from specfuzz.state_machine.profiles import profile_of

    check_kind(system)
    if isinstance(oracles, str):
        raise UsageError(f"`oracles`={oracles!r} is a text: give a list of names, for example [{oracles!r}].")
    if profile is not None and not isinstance(profile, str | Profile):
        raise UsageError(f"`profile`={profile!r} is no profile: give `dev`, `ci`, `nightly` or a specfuzz.Profile.")
    plan = Plan(
        system=system, config=checked(config), oracles=None if oracles is None else tuple(oracles),
        profile=profile_of(profile) if isinstance(profile, str) else profile,
    )  # fmt: skip
    doc = f"No rule is broken on `{name_of(system)}`."
    return type("Machine", (Machine,), {"plan": plan, "__doc__": doc, "__module__": __name__})
