"""What a bug planted into the real SGLang classes is, and the registry of all of them.

This module imports no engine: a bug gets the loaded one when it is planted. Bugs of a draft worker are planted into
the toy worker, which stands where SGLang's workers stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Owner
from specfuzz.core.registry import Registry

if TYPE_CHECKING:
    from specfuzz.systems.sglang.versions import Engine

#: swap(target, name, replacement factory): rebind target.name to factory(original) until the run ends.
Swap = Callable[[Any, str, Callable[[Any], Any]], None]


class Planted:
    """A planted bug's rebound names; `undo` restores them, newest first."""

    def __init__(self) -> None:
        """Nothing is rebound yet."""
        self._saved: list[tuple[Any, str, Any]] = []

    def swap(self, target: Any, name: str, factory: Callable[[Any], Any]) -> None:
        """Rebind `target.name`; the factory gets what was there."""
        original = target.__dict__[name]
        self._saved.append((target, name, original))
        setattr(target, name, factory(original))

    def undo(self) -> None:
        """Restore every name; idempotent."""
        while self._saved:
            target, name, original = self._saved.pop()
            setattr(target, name, original)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedBug:
    """One bug. killed_by: oracles of which at least one must be violated. needs: what the configuration must offer.

    algorithm: the one that it is pinned to. source: where such a bug was seen, or why it can happen. config: pinned
    fields. equivalent: why it can't die, or None.
    """

    name: str
    summary: str
    owner: Owner
    killed_by: tuple[str, ...]
    needs: Capability
    algorithm: str
    source: str
    patch: Callable[[Engine, Swap], None]
    config: Mapping[str, Any] = field(default_factory=dict)
    equivalent: str | None = None

    def plant(self, engine: Engine) -> Planted:
        """Rebind the engine's names for one run."""
        planted = Planted()
        self.patch(engine, planted.swap)
        return planted


MUTANTS: Registry[PlantedBug] = Registry("mutant of sglang")


def get(name: str) -> PlantedBug:
    """The bug of that name; raises UnknownName with the closest ones."""
    return MUTANTS.get(name)


def bug(
    name: str,
    owner: Owner,
    killed_by: tuple[str, ...],
    *,
    needs: Capability,
    source: str,
    algorithm: str = "EAGLE",
    **config: Any,
) -> Callable[[Callable[[Engine, Swap], None]], Callable[[Engine, Swap], None]]:
    """Register the decorated patch under its name; the first line of its docstring says what goes wrong."""

    def register(patch: Callable[[Engine, Swap], None]) -> Callable[[Engine, Swap], None]:
        summary = (patch.__doc__ or "").strip().splitlines()[0]
        planted = PlantedBug(
            name=name, summary=summary, owner=owner, killed_by=killed_by, needs=needs, algorithm=algorithm,
            source=source, patch=patch, config=config,
        )  # fmt: skip
        MUTANTS.register(name, planted)
        return patch

    return register
