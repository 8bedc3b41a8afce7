"""Applies oracles and reachable goals to steps, counts the verdicts, turns clashes into violations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specfuzz.core.capability import OBSERVATIONS, Capability
from specfuzz.core.clock import Point, Scope
from specfuzz.core.event import EVENT_TYPES, Event
from specfuzz.core.oracle import Oracle, Reachable, Step
from specfuzz.core.phase import phase_of
from specfuzz.core.snapshot import ReqView
from specfuzz.core.verdict import Clash, Verdict, Violation


class Count:
    """How often one oracle said what. applied = holds + violated."""

    __slots__ = ("holds", "not_applicable", "unknown", "violated")

    def __init__(self) -> None:
        self.holds = self.violated = self.unknown = self.not_applicable = 0

    @property
    def applied(self) -> int:
        """Judgements that said something."""
        return self.holds + self.violated


class Tally:
    """Counts over a whole campaign, by oracle and by reachable goal."""

    def __init__(self) -> None:
        self.oracles: dict[str, Count] = {}
        self.reached: dict[str, int] = {}

    def of(self, name: str) -> Count:
        """The counts of one oracle."""
        return self.oracles.setdefault(name, Count())


Entry = tuple[Oracle, Callable[..., Any], Count]


class Judge:
    """All oracles compiled for one set of capabilities: by event class, then by scope.

    An oracle whose needs aren't met never looks: it counts one UNKNOWN per run where only the view is missing, nothing
    where the engine lacks the ability, and is reported as not exercised in both cases.
    """

    def __init__(
        self, oracles: Sequence[Oracle], goals: Sequence[Reachable], capabilities: Capability, tally: Tally
    ) -> None:
        """tally: receives the counts."""
        self._tally = tally
        usable = [oracle for oracle in oracles if oracle.needs in capabilities]
        for oracle in oracles:
            count = tally.of(oracle.name)
            missing = oracle.needs & ~capabilities
            if missing and missing in OBSERVATIONS:
                count.unknown += 1  # the engine may well do it, but nobody can see it
        for goal in goals:
            tally.reached.setdefault(goal.name, 0)
        self._goals = [(goal.name, goal.reached) for goal in goals if goal.needs in capabilities]
        self._plans: dict[type[Event], _Plan] = {
            event_type: _Plan([o for o in usable if o.on is None or event_type in o.on], tally)
            for event_type in EVENT_TYPES.values()
        }

    def judge(self, step: Step) -> list[Violation]:
        """Every violation that this step shows, in order of registration within each scope."""
        plan = self._plans[type(step.event)]
        clashes: list[tuple[Oracle, Clash, str | None]] = []
        before, after = step.before, step.after
        if plan.request:
            known = before.reqs
            for rid, req in after.reqs.items():
                # A request that was finished before this event and did not change has nothing new to say.
                if req.finished_reason is not None and known.get(rid) is req:
                    continue
                _apply(plan.request, step, req, rid, clashes)
        for launch in after.launches:
            if launch.entry_now:
                _apply(plan.entry, step, launch, None, clashes)
            if launch.exit_now:
                _apply(plan.exit, step, launch, None, clashes)
            if launch.number == step.receipt.launch:
                _apply(plan.launched, step, launch, None, clashes)
        if after.pool is not before.pool:
            _apply(plan.pool, step, after.pool, None, clashes)
        for oracle, check, count in plan.run:
            _count(oracle, count, check(step), None, clashes)
        reached = self._tally.reached
        for name, goal in self._goals:
            if goal(step):
                reached[name] += 1
        return [_violation(step, *clash) for clash in clashes]


class _Plan:
    __slots__ = ("entry", "exit", "launched", "pool", "request", "run")

    def __init__(self, oracles: list[Oracle], tally: Tally) -> None:
        def entries(scope: Scope, point: Point | None = None) -> list[Entry]:
            return [
                (o, o.check, tally.of(o.name))
                for o in oracles
                if o.scope is scope and (point is None or o.point is point)
            ]

        self.request = entries(Scope.REQUEST)
        self.entry = entries(Scope.BATCH, Point.WORKER_ENTRY)
        self.exit = entries(Scope.BATCH, Point.WORKER_EXIT)
        self.launched = entries(Scope.BATCH, Point.AFTER_EVENT)
        self.pool = entries(Scope.POOL)
        self.run = entries(Scope.RUN)


def _apply(
    entries: list[Entry], step: Step, subject: Any, rid: str | None, clashes: list[tuple[Oracle, Clash, str | None]]
) -> None:
    for oracle, check, count in entries:
        finding = check(step, subject)
        if finding is None:
            count.not_applicable += 1
        elif finding is Verdict.HOLDS:
            count.holds += 1
        else:
            _count(oracle, count, finding, rid, clashes)


def _count(
    oracle: Oracle, count: Count, finding: Any, rid: str | None, clashes: list[tuple[Oracle, Clash, str | None]]
) -> None:
    if finding is None:
        count.not_applicable += 1
    elif finding is Verdict.HOLDS:
        count.holds += 1
    elif finding is Verdict.UNKNOWN:
        count.unknown += 1
    elif isinstance(finding, Clash):
        count.violated += 1
        clashes.append((oracle, finding, rid))
    else:
        raise TypeError(f"oracle `{oracle.name}` returned {finding!r}; it must return HOLDS, UNKNOWN, a Clash or None.")


def _violation(step: Step, oracle: Oracle, clash: Clash, rid: str | None) -> Violation:
    phase = str(phase_of(rid, step.ledger, step.after)) if rid is not None else str(oracle.point)
    return Violation(
        oracle=oracle.name, owner=str(oracle.owner), clock=str(oracle.clock), phase=phase, formula=oracle.formula,
        values=clash.values, fact=clash.fact, counterfact=clash.counterfact, source=oracle.source,
        event_index=step.index, rid=rid,
    )  # fmt: skip


def live(req: ReqView) -> bool:
    """Whether the request still holds a row and is neither finished nor retracted."""
    return req.req_pool_idx is not None and req.finished_reason is None and not req.is_retracted
