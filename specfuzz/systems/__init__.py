"""Adapters of the port, the only floor where engines and snapshots meet; importing it registers our own systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specfuzz import __version__
from specfuzz.core.port import SYSTEMS, OpenOptions, System, open_system
from specfuzz.errors import UsageError

__all__ = ["BuiltinSystem"]

Availability = tuple[bool, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinSystem:
    """A factory for `NAME` or `NAME:ARGUMENT`; imports its adapter only when it is opened."""

    name: str
    summary: str
    make: Callable[[str, OpenOptions], System]
    available: Callable[[], Availability] = lambda: (True, __version__, "", "")

    def open(self, argument: str, options: OpenOptions) -> System:
        """The opened system; raises UsageError, UnknownName or MissingPart."""
        return self.make(argument, options)

    def availability(self) -> Availability:
        """(available, version, why_not, install command)."""
        return self.available()


def _reference(argument: str, options: OpenOptions) -> System:
    from specfuzz.systems.reference import ReferenceSystem

    if argument:
        raise UsageError(f"`reference` takes no argument, got `{argument}`; a planted bug is `mutated:{argument}`.")
    return ReferenceSystem(device=options.device, check_races=options.check_races)


def _mutated(argument: str, options: OpenOptions) -> System:
    from specfuzz.mutants import MUTANTS
    from specfuzz.systems.reference import ReferenceSystem

    mutant = MUTANTS.get(argument)
    return ReferenceSystem(
        name=f"mutated:{mutant.name}", device=options.device, patch=mutant.patch, check_races=options.check_races
    )


def _rerun(argument: str, options: OpenOptions) -> System:
    from specfuzz.systems.rerun import RerunSystem

    inner = argument or "reference"
    return RerunSystem(*_open_both(inner, inner, options))


def _lockstep(argument: str, options: OpenOptions) -> System:
    from specfuzz.systems.lockstep import LockstepSystem

    first, comma, second = argument.partition(",")
    if not (first and comma and second) or "," in second:
        raise UsageError(f"`lockstep:{argument}` doesn't name two systems; write `lockstep:reference,sglang`.")
    return LockstepSystem(*_open_both(first, second, options))


def _open_both(first: str, second: str, options: OpenOptions) -> tuple[System, System]:
    for name in (first, second):
        if name.partition(":")[0] in ("rerun", "lockstep"):
            raise UsageError(f"`{name[:60]}` can't run inside of `rerun` or `lockstep`: name the engine itself.")
    opened = open_system(first, options)
    try:
        return opened, open_system(second, options)
    except BaseException:
        opened.close()  # an engine process would be left behind
        raise


def _sglang(argument: str, options: OpenOptions) -> System:
    from specfuzz.systems.sglang import open_sglang

    return open_sglang(argument, options)


def _sglang_available() -> Availability:
    from specfuzz.systems.sglang import availability

    return availability()


for _system in (
    BuiltinSystem(name="reference", summary="the full reference engine", make=_reference),
    BuiltinSystem(name="mutated", summary="the reference with one planted bug: mutated:MUTANT", make=_mutated),
    BuiltinSystem(name="rerun", summary="a system run twice, which must agree: rerun:NAME", make=_rerun),
    BuiltinSystem(name="lockstep", summary="two systems side by side: lockstep:A,B", make=_lockstep),
    BuiltinSystem(
        name="sglang", summary="the real SGLang scheduler classes on a CPU", make=_sglang, available=_sglang_available
    ),
):
    SYSTEMS.register(_system.name, _system)
