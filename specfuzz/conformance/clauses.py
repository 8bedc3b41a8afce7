"""What a clause is, and the evidence that the clauses of one subject share: recorded runs over configurations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from specfuzz.conformance.runs import Choose, Run, play
from specfuzz.conformance.walks import Loop, Walk, mixed_runs, typical_requests
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import format_event
from specfuzz.core.port import System
from specfuzz.core.snapshot import Snapshot

#: Walks per configuration and events of each before it is drained: enough for every kind of event to meet every other.
WALKS, WALK_EVENTS = 2, 60
#: End a run of a system that never gets anywhere: far more than a walk may take, and than the typical requests need.
MOST_EVENTS, MOST_SERVED = 2000, 400
#: Seconds to open an instance from which on two never live side by side.
SLOW_OPENING = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a clause says. passed: None where it can't be judged; because: why, in one sentence."""

    passed: bool | None
    because: str


def holds(because: str) -> Answer:
    """The clause is kept; because: what was looked at."""
    return Answer(passed=True, because=because)


def broken(because: str) -> Answer:
    """The clause is broken; because: the first place."""
    return Answer(passed=False, because=because)


def unjudged(because: str) -> Answer:
    """Nothing can be said about this subject."""
    return Answer(passed=None, because=because)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One clause of the contract. rule: the sentence that it stands for."""

    name: str
    rule: str
    judge: Callable[[Evidence], Answer]


def clause(name: str) -> Callable[[Callable[[Evidence], Answer]], Clause]:
    """Make the decorated judge a clause; the first line of its docstring is the rule."""

    def declare(judge: Callable[[Evidence], Answer]) -> Clause:
        return Clause(name=name, rule=(judge.__doc__ or "").strip().splitlines()[0], judge=judge)

    return declare


class Evidence:
    """One subject, opened, and everything that was seen of it. stops: what ended runs too early, over all clauses.

    configs: configurations that the subject runs, the plainest first.
    """

    def __init__(
        self,
        open_system: Callable[[], System],
        configs: Sequence[EngineConfig],
        *,
        given: System | None = None,
        deadline: float = float("inf"),
        seed: int = 1,
    ) -> None:
        """given: the only instance that there is, opened and closed by the caller. deadline: `time.monotonic` seconds;
        behind it no further walks are made than one per configuration. seed: of the first walk, the others count on."""
        self.open_system = open_system
        self.given = given
        started = time.monotonic()
        self.system = open_system()
        self.slow = time.monotonic() - started > SLOW_OPENING
        self.configs = tuple(configs)
        self.stops: list[str] = []
        self.events = self.refusals = self.plays = 0
        self._deadline, self._seed = deadline, seed
        self._closed = False
        self._served: dict[tuple[EngineConfig, EngineConfig], Run] = {}

    def reopen(self) -> None:
        """Another instance takes the place of the open one."""
        self.system.close()
        self.system = self.open_system()

    def close(self) -> None:
        """Close what was opened here, once."""
        if self.given is None and not self._closed:
            self._closed = True
            self.system.close()

    def play(
        self,
        config: EngineConfig,
        choose: Choose,
        *,
        most: int = MOST_EVENTS,
        looks: int = 1,
        tell: bool = True,
        beside: Callable[[], object] | None = None,
    ) -> Run:
        """A run of the subject, counted."""
        run = play(self.system, config, choose, most=most, looks=looks, tell=tell, beside=beside)
        self.plays += 1
        self.events += len(run.events)
        self.refusals += sum(receipt.refused is not None for receipt in run.receipts)
        if run.stopped is not None:
            self.stops.append(f"{config.label()}: {run.stopped}")
        return run

    def serve(
        self,
        config: EngineConfig,
        accept: Callable[[str, int], int] | None = None,
        *,
        like: EngineConfig | None = None,
    ) -> Run:
        """The typical requests, served to their end in the loop's own order.

        accept: None takes mixed runs. like: the configuration whose requests are served, None for this one's own.
        """
        asked = like or config
        known = self._served.get((config, asked)) if accept is None else None
        if known is not None:
            return known
        submits, stops = typical_requests(asked)
        loop = Loop(submits, accept=accept or mixed_runs(config), stops=stops)
        run = self.play(config, loop, most=MOST_SERVED)
        if accept is None:
            self._served[config, asked] = run
        return run

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Walks and served requests over all configurations; each event is looked at twice."""
        found = []
        for number in range(WALKS):
            for at, config in enumerate(self.configs):
                if number and time.monotonic() >= self._deadline:
                    break
                walk = Walk(self._seed + number * len(self.configs) + at, config, WALK_EVENTS)
                found.append(self.play(config, walk, looks=2))
        return (*found, *(self.serve(config) for config in self.configs))

    def claiming(self, flag: Capability) -> list[Run]:
        """The runs whose configuration claims the whole flag."""
        return [run for run in self.runs if flag in run.capabilities]


def place(run: Run, index: int) -> str:
    """Where in a run something was seen."""
    return f"{run.config.label()}, event {index} `{format_event(run.events[index])}`"


def difference(one: Run, other: Run) -> str | None:
    """The first receipt or state in which two runs of the same events differ, or None."""
    if one.stopped != other.stopped:
        return f"{one.config.label()}: one run ended with {one.stopped}, the other with {other.stopped}"
    for index, (left, right) in enumerate(zip(one.receipts, other.receipts, strict=False)):
        if left != right:
            return f"{place(one, index)}: the receipt is {left}, then {right}"
    if len(one.events) != len(other.events):
        return f"{one.config.label()}: one run has {len(one.events)} events, the other {len(other.events)}"
    for index, (here, there) in enumerate(zip(one.moments, other.moments, strict=False)):
        if here.told != there.told:
            return f"{place(one, index)}: {changed_fields(here.after, there.after)}"
    return None


def changed_fields(one: Snapshot, other: Snapshot) -> str:
    """The fields in which two snapshots differ, by name."""
    names = [f.name for f in fields(Snapshot) if repr(getattr(one, f.name)) != repr(getattr(other, f.name))]
    return f"the snapshots differ in {', '.join(names) or 'nothing any more'}"
