"""Seeded bugs: each changes a fresh reference engine in at most 15 lines and names the oracles that must see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.core.registry import Registry
from specfuzz.errors import UsageError
from specfuzz.reference.scheduler import Scheduler

__all__ = ["MUTANTS", "Mutant", "Patch", "mutant"]

Patch = Callable[[Scheduler], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug. killed_by: oracles of which at least one must be violated, the owner's own first.

    source: the public bug or rule that it stands for. algorithm: pinned by name, None for any; needs: capabilities that
    a configuration must have; config: further pins. equivalent: why no oracle can see it, for one kept as a warning.
    """

    name: str
    summary: str
    source: str
    killed_by: tuple[str, ...]
    patch: Patch
    algorithm: str | None = None
    needs: Capability = Capability.NONE
    config: dict[str, Any] = field(default_factory=dict)
    equivalent: str | None = None


_FILES = (
    "ledger", "release", "relay", "isolation", "batches", "results", "pools", "scheduling", "workers", "mixed",
    "chunks", "trees", "grammar", "memory",
)  # fmt: skip


def _load_builtin() -> None:
    for name in _FILES:
        import_module(f"specfuzz.mutants.{name}")


MUTANTS: Registry[Mutant] = Registry("mutant", group="specfuzz.mutants", load_builtin=_load_builtin)


def mutant(
    name: str,
    *,
    source: str,
    killed_by: tuple[str, ...],
    algorithm: str | None = None,
    needs: Capability = Capability.NONE,
    equivalent: str | None = None,
    **config: Any,
) -> Callable[[Patch], Patch]:
    """Register the decorated patch; its docstring's first line is the summary. Arguments: as in `Mutant`."""

    def declare(patch: Patch) -> Patch:
        if not patch.__doc__:
            raise UsageError(f"mutant `{name}` has an empty docstring: its first line is the summary.")
        summary = patch.__doc__.strip().splitlines()[0]
        MUTANTS.register(
            name,
            Mutant(
                name=name, summary=summary, source=source, killed_by=killed_by, patch=patch, algorithm=algorithm,
                needs=needs, config=config, equivalent=equivalent,
            ),
        )  # fmt: skip
        return patch

    return declare
