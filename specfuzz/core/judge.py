"""Applies oracles and reachable goals to steps, counts the verdicts, turns clashes into violations.

An oracle that raises has met what it can't read: that is the finding `oracle-fault`, and the others go on judging.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specfuzz.core.capability import OBSERVATIONS, Capability
from specfuzz.core.clock import Point, Scope
from specfuzz.core.event import EVENT_TYPES, Event, rid_of
from specfuzz.core.oracle import Goal, Oracle, Reachable, Step
from specfuzz.core.phase import phase_of
from specfuzz.core.stumbles import ORACLE_FAULT, BadAnswer, stumble
from specfuzz.core.verdict import Clash, Verdict, Violation

HOLDS = Verdict.HOLDS


class Count:
    """How often one oracle said what. unsure: looks that ended UNKNOWN. unseen: runs in which nobody could look."""

    __slots__ = ("groups", "holds", "unseen", "unsure", "violated")

    def __init__(self) -> None:
        self.holds = self.violated = self.unsure = self.unseen = 0
        self.groups: list[_Group] = []

    @property
    def applied(self) -> int:
        """Judgements that said something."""
        return self.holds + self.violated

    @property
    def unknown(self) -> int:
        """Looks and whole runs that could not tell."""
        return self.unsure + self.unseen

    @property
    def not_applicable(self) -> int:
        """Looks that found nothing to judge."""
        return sum(group.looks for group in self.groups) - self.applied - self.unsure


class Tally:
    """Counts over a whole campaign, by oracle and by reachable goal, and the panels that do the counting."""

    def __init__(self) -> None:
        self.oracles: dict[str, Count] = {}
        self.reached: dict[str, int] = {}
        self._panels: dict[tuple[Any, ...], Panel] = {}

    def of(self, name: str) -> Count:
        """The counts of one oracle."""
        return self.oracles.setdefault(name, Count())

    def panel(self, oracles: Sequence[Oracle], goals: Sequence[Reachable], capabilities: Capability) -> Panel:
        """The judge for these; compiled once, since sorting the oracles costs as much as judging a hundred events."""
        key = (tuple(map(id, oracles)), tuple(map(id, goals)), capabilities)
        panel = self._panels.get(key)
        if panel is None:
            panel = self._panels[key] = Panel(oracles, goals, capabilities, self)
        return panel


class Panel:
    """All oracles and goals compiled for one set of capabilities: by event class, then by scope.

    A request whose view is unchanged is passed over where nothing can have become true or false about it: when it has
    finished, and when it holds no row and neither the event, its receipt nor a settled forward names it.

    An oracle whose needs aren't met never looks: it counts one UNKNOWN per run where only the view is missing, nothing
    where the engine lacks the ability, and is reported as not exercised in both cases.
    """

    def __init__(
        self, oracles: Sequence[Oracle], goals: Sequence[Reachable], capabilities: Capability, tally: Tally
    ) -> None:
        """tally: receives the counts; keeps this panel."""
        self._tally = tally
        self._kept = (tuple(oracles), tuple(goals))  # their ids are the panel's key
        self._unseen: list[Count] = []
        usable = [oracle for oracle in oracles if oracle.needs in capabilities]
        for oracle in oracles:
            count = tally.of(oracle.name)
            missing = oracle.needs & ~capabilities
            if missing and missing in OBSERVATIONS:
                self._unseen.append(count)  # the engine may well do it, but nobody can see it
        for goal in goals:
            tally.reached.setdefault(goal.name, 0)
        reachable = [goal for goal in goals if goal.needs in capabilities]
        self._plans: dict[type[Event], _Plan] = {
            event_type: _Plan(
                [o for o in usable if o.on is None or event_type in o.on],
                [g for g in reachable if g.on is None or event_type in g.on],
                tally,
            )
            for event_type in EVENT_TYPES.values()
        }

    def begin(self) -> None:
        """A new run starts."""
        for count in self._unseen:
            count.unseen += 1

    def judge(self, step: Step) -> list[Violation]:
        """Every violation that this step shows, in order of registration within each scope, then what was raised."""
        plan = self._plans[type(step.event)]
        clashes: list[Violation] = []
        before, after = step.before, step.after
        changed, every = plan.changed, plan.every
        if plan.moved:
            known, named = before.reqs, None
            for rid, req in after.reqs.items():
                if known.get(rid) is not req:
                    changed.looks += 1
                    every.looks += 1
                    _apply(plan.moved, step, req, rid, clashes)
                    continue
                if not every.entries or req.finished_reason is not None:
                    continue  # finished before this event and unchanged: it has nothing new to say
                if req.req_pool_idx is None:
                    if named is None:
                        named = _named(step)
                    if rid not in named:
                        continue  # it waits as before, and the event is not about it
                every.looks += 1
                _apply(every.entries, step, req, rid, clashes)
        if after.launches and plan.forwards:
            launched = step.receipt.launch
            for launch in after.launches:
                if launch.entry_now:
                    plan.entry.looks += 1
                    _apply(plan.entry.entries, step, launch, None, clashes)
                if launch.exit_now:
                    plan.exit.looks += 1
                    _apply(plan.exit.entries, step, launch, None, clashes)
                if launch.number == launched:
                    plan.launched.looks += 1
                    _apply(plan.launched.entries, step, launch, None, clashes)
        if after.pool is not before.pool:
            plan.pool.looks += 1
            _apply(plan.pool.entries, step, after.pool, None, clashes)
        plan.run.looks += 1
        _apply_to_run(plan.run.entries, step, clashes)
        self._look_for(plan.goals, step, clashes)
        if len(clashes) > 1:
            clashes.sort(key=lambda violation: violation.oracle == ORACLE_FAULT)
        return clashes

    def _look_for(self, goals: list[tuple[str, Goal]], step: Step, clashes: list[Violation]) -> None:
        name = ""
        try:
            for name, goal in goals:
                if goal(step):
                    self._tally.reached[name] += 1
        except MemoryError:
            raise
        except Exception as error:
            clashes.append(stumble(step, name, error))
            self._look_for(goals[[one for one, _ in goals].index(name) + 1 :], step, clashes)


Entry = tuple[Oracle, Callable[..., Any], Count]


class _Group:
    """Oracles of one event class, scope and point, and how often they have looked at a subject."""

    __slots__ = ("entries", "looks")

    def __init__(self, oracles: list[Oracle], tally: Tally) -> None:
        self.looks = 0
        self.entries: list[Entry] = [(o, o.check, tally.of(o.name)) for o in oracles]
        for _, _, count in self.entries:
            count.groups.append(self)


class _Plan:
    """The groups that look after one event class.

    changed, every: request rules for requests whose view changed, and for every request that may have news. moved:
    both. forwards: whether any rule looks at launches.
    """

    __slots__ = ("changed", "entry", "every", "exit", "forwards", "goals", "launched", "moved", "pool", "run")

    def __init__(self, oracles: list[Oracle], goals: list[Reachable], tally: Tally) -> None:
        def group(scope: Scope, point: Point | None = None, changed_only: bool = False) -> _Group:
            chosen = [o for o in oracles if o.scope is scope and (point is None or o.point is point)]
            return _Group([o for o in chosen if o.changed_only is changed_only], tally)

        self.changed = group(Scope.REQUEST, changed_only=True)
        self.every = group(Scope.REQUEST)
        self.moved = self.changed.entries + self.every.entries
        self.entry = group(Scope.BATCH, Point.WORKER_ENTRY)
        self.exit = group(Scope.BATCH, Point.WORKER_EXIT)
        self.launched = group(Scope.BATCH, Point.AFTER_EVENT)
        self.forwards = bool(self.entry.entries or self.exit.entries or self.launched.entries)
        self.pool = group(Scope.POOL)
        self.run = group(Scope.RUN)
        self.goals = [(goal.name, goal.reached) for goal in goals]


def _apply(entries: list[Entry], step: Step, subject: Any, rid: str | None, clashes: list[Violation]) -> None:
    try:  # around the loop, so that it costs nothing as long as nobody raises
        for oracle, check, count in entries:
            finding = check(step, subject)
            if finding is HOLDS:
                count.holds += 1
            elif finding is not None:
                _count(step, oracle, count, finding, rid, clashes)
    except (BadAnswer, MemoryError):
        raise
    except Exception as error:
        _apply(_behind(oracle, entries, step, error, rid, clashes), step, subject, rid, clashes)


def _apply_to_run(entries: list[Entry], step: Step, clashes: list[Violation]) -> None:
    """`_apply` for rules that look at the step alone; a loop of its own, as each runs at every event."""
    try:
        for oracle, check, count in entries:
            finding = check(step)
            if finding is HOLDS:
                count.holds += 1
            elif finding is not None:
                _count(step, oracle, count, finding, None, clashes)
    except (BadAnswer, MemoryError):
        raise
    except Exception as error:
        _apply_to_run(_behind(oracle, entries, step, error, None, clashes), step, clashes)


def _behind(
    oracle: Oracle, entries: list[Entry], step: Step, error: Exception, rid: str | None, clashes: list[Violation]
) -> list[Entry]:
    """Note that the oracle raised; returns the entries that have not judged yet."""
    at = [one for one, _check, _count in entries].index(oracle)
    entries[at][2].unsure += 1
    clashes.append(stumble(step, oracle.name, error, clock=str(oracle.clock), rid=rid))
    return entries[at + 1 :]


def _named(step: Step) -> set[str]:
    """The requests that the event, its receipt or a forward that it settled speaks about."""
    event, receipt = step.event, step.receipt
    found = {*receipt.rows, *receipt.retracted, *receipt.dropped}
    rid = rid_of(event)
    if rid is not None:
        found.add(rid)
    for known in step.ledger.settled:
        found.update(known.rids)
    for about in (receipt.admitted, receipt.emitted, receipt.finished):
        for one in about:
            found.add(one[0])
    return found


def _count(step: Step, oracle: Oracle, count: Count, finding: Any, rid: str | None, clashes: list[Violation]) -> None:
    if finding is Verdict.UNKNOWN:
        count.unsure += 1
    elif isinstance(finding, Clash):
        count.violated += 1
        clashes.append(_violation(step, oracle, finding, rid))
    else:
        raise BadAnswer(f"oracle `{oracle.name}` returned {finding!r}; it must return HOLDS, UNKNOWN, a Clash or None.")


def _violation(step: Step, oracle: Oracle, clash: Clash, rid: str | None) -> Violation:
    phase = str(phase_of(rid, step.ledger, step.after)) if rid is not None else str(oracle.point)
    return Violation(
        oracle=oracle.name, owner=str(oracle.owner), clock=str(oracle.clock), phase=phase, formula=oracle.formula,
        values=clash.values, fact=clash.fact, counterfact=clash.counterfact, source=oracle.source,
        event_index=step.index, rid=clash.rid if rid is None else rid,
    )  # fmt: skip
