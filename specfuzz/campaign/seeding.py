"""Makes seed traces: few short runs of a clean system that together reach every reachable goal.

Candidates are generated sessions over the cover of configurations. A greedy set cover chooses among them. Seeds of
goals are shrunk by their events as long as they reach what they were chosen for; seeds of situations stay as they were
generated, because what they are worth lies in everything that happens around a goal. Nothing here knows a mutant.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from specfuzz.campaign.running import run_examples, run_seed, shorter
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.judge import Tally
from specfuzz.core.oracle import Oracle, Reachable
from specfuzz.core.port import System, accepted_configs
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.core.verdict import Identity
from specfuzz.errors import EngineFault
from specfuzz.session import Session
from specfuzz.state_machine import PROFILES, Profile
from specfuzz.trace.shrink import Ran, shrink_events

#: Runs that the shrinker may spend on one seed. It ends minimal or not: a seed is short, not a proof.
MAX_TRIES = 400
#: What "it still reaches what it was chosen for" is called towards the shrinker.
_KEPT = Identity("reaches-its-goals", "recorder", "after-event")

#: What a run is wanted for: a goal, or a goal under circumstances.
Want = Hashable
#: What a run that reached these goals under this configuration is good for.
Worth = Callable[[EngineConfig, Iterable[str]], frozenset[Want]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedPlan:
    """What to make seeds of. system: clean. oracles: all of them must hold on every seed.

    examples: sessions per configuration. seed: fixes everything. most: seeds at most; the cover ends there.
    progress: gets one line per step.
    """

    system: System
    configs: Sequence[EngineConfig]
    oracles: Sequence[Oracle]
    goals: Sequence[Reachable]
    seed: int = 1
    examples: int = 20
    most: int = 40
    profile: Profile = PROFILES["dev"]
    progress: Callable[[str], None] = lambda line: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """What was made. goals: shrunk traces that reach every goal that any candidate reached. situations: whole sessions
    in which the goals are met again by other algorithms, loops and page sizes.

    unreached: goals that no candidate reached, though some configuration has what they need. unreachable: goals that
    need a capability which no configuration has. missed: situations beyond the most seeds that were allowed.
    """

    goals: tuple[Trace, ...]
    situations: tuple[Trace, ...]
    unreached: tuple[str, ...]
    unreachable: tuple[str, ...]
    missed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    config: EngineConfig
    events: tuple[Event, ...]
    reached: frozenset[str]


def plain(config: EngineConfig, goals: Iterable[str]) -> frozenset[Want]:
    """A goal is a goal, wherever it is reached."""
    return frozenset(goals)


def situated(config: EngineConfig, goals: Iterable[str]) -> frozenset[Want]:
    """A goal counts once for every algorithm, kind of draft, loop and kind of page: other code answers for it there."""
    place = (config.algorithm, config.topk > 1, config.overlap, config.page_size > 1)
    return frozenset((goal, *place) for goal in goals)


def make_seeds(plan: SeedPlan) -> Seeds:
    """Generate, cover, shrink. Raises the first refusal if nothing is run, or EngineFault if the system isn't clean."""
    accepted, refused = accepted_configs(plan.system, plan.configs)
    if refused and not accepted:
        raise next(iter(refused.values()))
    configs = tuple(accepted)
    candidates = _candidates(plan, configs)
    plan.progress(f"{len(candidates)} sessions over {len(configs)} configurations")
    goals = _chosen(plan, candidates, plain, (), plan.most)
    have = [
        _Candidate(config=trace.config, events=trace.events, reached=reached_by(plan.system, trace, plan.goals))
        for trace in goals
    ]
    situations = _chosen(plan, candidates, situated, have, plan.most - len(goals))
    wanted = frozenset().union(*(situated(c.config, c.reached) for c in candidates))
    found = frozenset().union(*(_worth_of(plan, trace, situated) for trace in (*goals, *situations)))
    reached = frozenset().union(*(candidate.reached for candidate in candidates))
    unreachable = tuple(unreachable_goals(plan.system, configs, plan.goals))
    return Seeds(
        goals=goals, situations=situations, unreachable=unreachable, missed=len(wanted - found),
        unreached=tuple(g.name for g in plan.goals if g.name not in reached and g.name not in unreachable),
    )  # fmt: skip


def unreachable_goals(system: System, configs: Iterable[EngineConfig], goals: Iterable[Reachable]) -> list[str]:
    """Names of the goals that need a capability which no configuration has that the system runs."""
    accepted, _refused = accepted_configs(system, configs)
    return [goal.name for goal in goals if not any(goal.needs in found for found in accepted.values())]


def reached_by(system: System, trace: Trace, goals: Sequence[Reachable]) -> frozenset[str]:
    """Names of the goals that the events of the trace reach on the system."""
    return _run(system, trace.config, trace.events, goals)[0]


def _candidates(plan: SeedPlan, configs: Sequence[EngineConfig]) -> list[_Candidate]:
    tally, counted, found = Tally(), dict[str, int](), list[_Candidate]()

    def note(session: Session) -> None:
        reached = frozenset(name for name, count in tally.reached.items() if count > counted.get(name, 0))
        counted.update(tally.reached)
        events = tuple(step.event for step in session.steps)
        found.append(_Candidate(config=session.config, events=events, reached=reached))

    for config in configs:
        ended = run_examples(
            plan.system, config, (), goals=plan.goals, tally=tally, seed=run_seed(plan.seed, config, 0),
            profile=shorter(plan.profile, plan.examples), on_end=note,
        )  # fmt: skip
        if ended is not None:
            raise ended if isinstance(ended, EngineFault) else ended.fault or EngineFault("the engine failed")
    return found


def _chosen(
    plan: SeedPlan, candidates: Sequence[_Candidate], worth: Worth, have: Iterable[_Candidate], most: int
) -> tuple[Trace, ...]:
    """The greedy cover of what the candidates are worth beyond what is there already; goals alone are shrunk."""
    worths = [worth(candidate.config, candidate.reached) for candidate in candidates]
    left = frozenset().union(*worths) - frozenset().union(*(worth(one.config, one.reached) for one in have))
    traces: list[Trace] = []
    while left and len(traces) < most:
        best = max(range(len(worths)), key=lambda at: (len(worths[at] & left), -len(candidates[at].events), -at))
        wanted = worths[best] & left
        traces.append(_trace(plan, candidates[best], wanted if worth is plain else None))
        left -= _worth_of(plan, traces[-1], worth)
        plan.progress(f"{len(traces)}: {len(wanted)} more in {len(traces[-1].steps)} events, {len(left)} left")
    return tuple(traces)


def _trace(plan: SeedPlan, candidate: _Candidate, wanted: frozenset[Want] | None) -> Trace:
    """The candidate as a trace that says what it reaches; shrunk to the wanted goals, if there are any."""
    config, events, goals = candidate.config, candidate.events, plan.goals
    if wanted is not None:

        def run(config: EngineConfig, events: tuple[Event, ...]) -> Ran:
            reached, steps = _run(plan.system, config, events, goals)
            return Ran(identity=_KEPT if wanted <= reached else None, steps=steps)

        small = shrink_events(config, events, run, _KEPT, max_tries=MAX_TRIES)
        config, events = small.config, small.events
    reached, steps = _run(plan.system, config, events, goals)
    trace = Trace(
        config=config, steps=steps, system=plan.system.name, version=plan.system.version, seed=plan.seed,
        note=f"reaches {', '.join(sorted(reached))}",
    )  # fmt: skip
    _check_clean(plan, trace)
    return trace


def _check_clean(plan: SeedPlan, trace: Trace) -> None:
    session = Session(plan.system, trace.config, plan.oracles)
    for event in trace.events:
        session.step(event)
    if session.violations:
        raise EngineFault(f"`{plan.system.name}` is not clean: a seed violates {session.violations[0].title}")


def _worth_of(plan: SeedPlan, trace: Trace, worth: Worth) -> frozenset[Want]:
    return worth(trace.config, reached_by(plan.system, trace, plan.goals))


def _run(
    system: System, config: EngineConfig, events: Sequence[Event], goals: Sequence[Reachable]
) -> tuple[frozenset[str], tuple[TraceStep, ...]]:
    """The goals that events reach from a fresh start, and what was really applied."""
    tally = Tally()
    session = Session(system, config, (), goals, tally=tally)
    for event in events:
        session.step(event)
    return frozenset(name for name, count in tally.reached.items() if count), tuple(session.steps)
