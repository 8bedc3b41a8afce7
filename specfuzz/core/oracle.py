"""What an oracle is: a declaration (name, formula, clock, owner, ...) around one pure function.

An oracle sees one `Step`: the event, the receipt, the snapshots before and after, and the ledger of what was asked for.
It returns HOLDS, UNKNOWN, a `Clash`, or None where it doesn't apply. It never asks the engine for its opinion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.legality import Ledger
from specfuzz.core.receipt import Receipt
from specfuzz.core.registry import Registry
from specfuzz.core.snapshot import Snapshot
from specfuzz.core.verdict import Finding
from specfuzz.errors import UsageError


class Step:
    """One applied event with everything that an oracle may look at.

    ledger: after the event. before, after: snapshots. capabilities: of the system that applied it.
    memo: scratch space that lives as long as the run, for values that oracles derive and share.
    """

    __slots__ = ("after", "before", "capabilities", "config", "event", "index", "ledger", "memo", "receipt")

    def __init__(
        self,
        *,
        index: int,
        event: Event,
        receipt: Receipt,
        before: Snapshot,
        after: Snapshot,
        ledger: Ledger,
        config: EngineConfig,
        capabilities: Capability,
        memo: dict[Any, Any],
    ) -> None:
        """index: 0-based position among the applied events."""
        self.index = index
        self.event = event
        self.receipt = receipt
        self.before = before
        self.after = after
        self.ledger = ledger
        self.config = config
        self.capabilities = capabilities
        self.memo = memo


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """One rule. check's arguments depend on the scope:

    REQUEST: check(step, req) for every request of `step.after.reqs`, except one whose view is unchanged and that holds
    no row, unless the event, its receipt or a settled forward names it;
    BATCH: check(step, launch) for every launch of `step.after.launches` at WORKER_ENTRY (entry_now) or WORKER_EXIT
    (exit_now), and at AFTER_EVENT for every launch that was made by this event;
    POOL: check(step, pool) only when the pool view is another object than before; RUN: check(step).
    on: event classes after which it looks; None = all. needs: an ability that is missing makes it not applicable, a
    view that is missing makes it UNKNOWN.
    changed_only: REQUEST scope only; look at requests whose view is another object than before.
    twin: the reachable goal that shows it had something to judge. protocol: ledger protocol ("pessimistic" or "any").
    """

    name: str
    formula: str
    clock: Clock
    owner: Owner
    point: Point
    scope: Scope
    source: str
    twin: str
    check: Callable[..., Finding]
    needs: Capability = Capability.NONE
    on: tuple[type[Event], ...] | None = None
    protocol: str = "any"
    changed_only: bool = False
    doc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reachable:
    """A goal that a run should reach at least once; without it a green run says little. reached(step) -> bool.

    on: event classes after which it looks; None = all.
    """

    name: str
    reached: Callable[[Step], bool]
    doc: str = ""
    needs: Capability = Capability.NONE
    on: tuple[type[Event], ...] | None = None


def _load_builtin() -> None:
    from importlib import import_module

    import_module("specfuzz.oracles")  # registers on import; core can't name it statically, it lies above


Goal = Callable[[Step], bool]

ORACLES: Registry[Oracle] = Registry("oracle", group="specfuzz.oracles", load_builtin=_load_builtin)
REACHABLE: Registry[Reachable] = Registry("reachable goal", load_builtin=_load_builtin)


def oracle(
    name: str,
    *,
    formula: str,
    clock: Clock,
    owner: Owner,
    scope: Scope,
    source: str,
    twin: str,
    point: Point = Point.AFTER_EVENT,
    needs: Capability = Capability.NONE,
    on: tuple[type[Event], ...] | None = None,
    protocol: str = "any",
    changed_only: bool = False,
) -> Callable[[Callable[..., Finding]], Callable[..., Finding]]:
    """Register the decorated function as an oracle; raises UsageError for an empty formula, source or docstring."""

    def declare(check: Callable[..., Finding]) -> Callable[..., Finding]:
        for word, text in (("formula", formula), ("source", source), ("docstring", check.__doc__)):
            if not text:
                raise UsageError(f"oracle `{name}` has an empty {word}.")
        ORACLES.register(
            name,
            Oracle(
                name=name, formula=formula, clock=clock, owner=owner, point=point, scope=scope, source=source,
                twin=twin, check=check, needs=needs, on=on, protocol=protocol, changed_only=changed_only,
                doc=(check.__doc__ or "").strip().splitlines()[0],
            ),
        )  # fmt: skip
        return check

    return declare


def reachable(
    name: str, *, needs: Capability = Capability.NONE, on: tuple[type[Event], ...] | None = None
) -> Callable[[Goal], Goal]:
    """Register the decorated predicate as a reachable goal."""

    def declare(reached: Goal) -> Goal:
        doc = (reached.__doc__ or "").strip()
        if not doc:
            raise UsageError(f"reachable goal `{name}` has an empty docstring.")
        REACHABLE.register(name, Reachable(name=name, reached=reached, doc=doc.splitlines()[0], needs=needs, on=on))
        return reached

    return declare
