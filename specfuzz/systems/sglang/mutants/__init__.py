"""Bugs planted into the real SGLang classes, each of a kind that this engine has had or could have.

A planted bug is at most 15 lines, lives as long as one run and names the oracles of which at least one must notice it.
"""

from __future__ import annotations

# Importing a module of bugs registers them.
from specfuzz.systems.sglang.mutants import grammar, mixed, relay, results, trees  # noqa: F401
from specfuzz.systems.sglang.mutants.planting import MUTANTS, Planted, PlantedBug, get

__all__ = ["MUTANTS", "Planted", "PlantedBug", "get"]
