"""Which planted bugs a clean system has, and how it is opened with one of them."""

from __future__ import annotations

from typing import Any

from specfuzz.core.registry import Registry
from specfuzz.errors import UsageError

#: Of a system: how its mutants are opened.
OPENED_AS = {"reference": "mutated:{}", "sglang": "sglang:{}"}


def mutants_of(system: str) -> Registry[Any]:
    """The mutants of a clean system; raises UsageError for a system that has none."""
    if system == "reference":
        from specfuzz.mutants import MUTANTS

        return MUTANTS
    if system == "sglang":
        from specfuzz.systems.sglang import MUTANTS as PLANTED

        return PLANTED
    raise UsageError(f"`--system {system}` has no mutants; those that have: {', '.join(OPENED_AS)}.")
