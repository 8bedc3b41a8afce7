"""One file per algorithm; found here or through the entry-point group `specfuzz.algorithms`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from specfuzz.core.capability import Capability
from specfuzz.core.registry import Registry
from specfuzz.reference.worker import ModelRunner, Worker

__all__ = ["ALGORITHMS", "Algorithm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """An algorithm: what it can do, where it publishes, what crosses rounds, how to make its worker."""

    name: str
    summary: str
    capabilities: Capability
    publishes: str
    relays: str
    make_worker: Callable[[ModelRunner], Worker]


def _load_builtin() -> None:
    for name in ("none", "eagle"):
        import_module(f"specfuzz.reference.algorithms.{name}")


ALGORITHMS: Registry[Algorithm] = Registry("algorithm", group="specfuzz.algorithms", load_builtin=_load_builtin)
