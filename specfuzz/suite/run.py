"""`run`: one scenario in the one-line notation, judged; `must_hold` and `must_violate` say what is expected of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.judge import Tally
from specfuzz.core.notation import format_event, parse_events
from specfuzz.core.oracle import ORACLES, Oracle
from specfuzz.core.port import OpenOptions, System
from specfuzz.core.snapshot import Snapshot
from specfuzz.core.stumbles import ORACLE_FAULT, stumbler
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.core.verdict import Identity, Violation
from specfuzz.errors import EngineFault, NotationError, UsageError
from specfuzz.session import Session
from specfuzz.suite.configs import ConfigLike, one_config
from specfuzz.suite.systems import SystemLike, opened
from specfuzz.suite.totals import CURRENT, applied_of
from specfuzz.trace.replay import FAULT

#: Findings that no oracle makes: an engine or an oracle that raised, and what systems say that compare two others.
_NOT_ORACLES = (FAULT, ORACLE_FAULT, "lockstep", "rerun")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a scenario came to. Other than a search it goes on behind a violation, and ends where the engine raises.

    events: as asked for; skipped: indices of those that were not legal there and so were not run. violations: the first
    of each identity, in order of events. fault: what the engine raised. applied: how often each oracle said something.
    state: the last snapshot.
    """

    system: SystemLike
    config: EngineConfig
    events: tuple[Event, ...]
    skipped: tuple[int, ...]
    violations: tuple[Violation, ...]
    fault: EngineFault | None
    applied: Mapping[str, int]
    state: Snapshot | None

    @property
    def violated(self) -> tuple[str, ...]:
        """Names of the violated oracles, in order of events."""
        return tuple(dict.fromkeys(violation.oracle for violation in self.violations))

    def must_hold(self, *oracles: str) -> RunResult:
        """Raise AssertionError with the report of the first violation of these oracles (none named: of any).

        It also raises where nothing can be said: an event was not legal, the engine raised, a named oracle had nothing
        to judge. Raises UnknownName for a name that was not judged by. Returns itself.
        """
        __tracebackhide__ = True
        for name in oracles:
            self._check_known(name)
        asked = (v for v in self.violations if not oracles or v.oracle in oracles or stumbler(v.identity) in oracles)
        broken = next(asked, None)
        if broken is not None:
            raise AssertionError(self._report(broken))
        if self.fault is not None:
            raise AssertionError(self._report(None))
        if self.skipped:
            index = self.skipped[0]
            raise AssertionError(
                f"event {index} `{format_event(self.events[index])}` was not legal there and was not run, so the "
                f"scenario is not the one that was written.\n{self._clocks()}"
            )
        silent = [name for name in oracles if not self.applied[name]]
        if silent or not any(self.applied.values()):
            who = f"`{'`, `'.join(silent)}`" if silent else "every oracle"
            raise AssertionError(f"nothing can be said: {who} had nothing to judge.\n{self._clocks()}")
        return self

    def must_violate(self, oracle: str) -> RunResult:
        """Raise AssertionError with the three clocks unless this oracle is violated.

        `engine-fault` and `oracle-fault` are names, too. Raises UnknownName for one that was not judged by. Returns
        itself.
        """
        __tracebackhide__ = True
        self._check_known(oracle)
        if oracle in self.violated or (oracle == FAULT and self.fault is not None):
            return self
        times = self.applied.get(oracle, 0)
        how = f"it held {times} times" if times else "it had nothing to judge"
        others = ", ".join(f"`{name}`" for name in self.violated) or "nothing"
        raise AssertionError(f"`{oracle}` was not violated: {how}. Violated: {others}.\n{self._clocks()}")

    def _check_known(self, name: str) -> None:
        if name not in self.applied and name not in _NOT_ORACLES:
            ORACLES.get(name)  # says which name was meant
            raise UsageError(f"`{name}` was not asked to judge this run; add it to `oracles`.")

    def _report(self, violation: Violation | None) -> str:
        return _shown(self, None if violation is None else violation.identity)

    def _clocks(self) -> str:
        return _shown(self, None)


def run(
    system: SystemLike,
    events: str | Iterable[Event],
    config: ConfigLike = None,
    *,
    oracles: Sequence[str] | None = None,
) -> RunResult:
    """Run a scenario on a fresh engine: `run("reference", "submit(a,5,3) prefill(a) settle").must_hold()`.

    system: a name as for `--system`, an object that satisfies `specfuzz.System`, or a callable that makes one.
    events: in the notation that `specfuzz explain --help` lists. config: an EngineConfig, or a dict of the fields that
    differ from its defaults. oracles: names to judge by, None = all.

    Raises NotationError, ConfigError, UnknownName, UsageError, or MissingPart if the system isn't here.
    """
    if isinstance(oracles, str):
        raise UsageError(f"`oracles`={oracles!r} is a text: give a list of names, for example [{oracles!r}].")
    asked = parse_events(events) if isinstance(events, str) else tuple(events)
    if not asked:
        raise NotationError("there are no events in an empty line; see `specfuzz explain --help`.")
    judges = tuple(ORACLES) if oracles is None else tuple(ORACLES.get(name) for name in oracles)
    wanted, tally = one_config(config), Tally()
    with opened(system) as target:
        result = _ran(system, target.system, wanted, judges, asked, tally)
    totals = CURRENT.get()
    if totals is not None:
        totals.tests += 1
        totals.events += len(asked) - len(result.skipped)
        totals.count(result.applied)
    return result


def _ran(
    given: SystemLike, system: System, config: EngineConfig, judges: Sequence[Oracle], events: tuple[Event, ...],
    tally: Tally,
) -> RunResult:  # fmt: skip
    found: dict[Identity, Violation] = {}
    skipped: list[int] = []
    state: Snapshot | None = None
    fault: EngineFault | None = None
    try:
        session = Session(system, config, judges, tally=tally, to_the_end=True)
        for index, event in enumerate(events):
            before = len(session.steps)
            for violation in session.step(event):
                found.setdefault(violation.identity, violation)
            state = session.state
            if len(session.steps) == before:
                skipped.append(index)
    except EngineFault as raised:
        fault = raised
    return RunResult(
        system=given, config=config, events=events, skipped=tuple(skipped), violations=tuple(found.values()),
        fault=fault, applied=applied_of(tally), state=state,
    )  # fmt: skip


def _shown(result: RunResult, identity: Identity | None) -> str:
    """The report of one violation, of the fault, or of what holds: run again, judged by that one rule only."""
    from specfuzz.campaign.showing import show
    from specfuzz.report.text import plain

    judges: tuple[Oracle, ...] = ()
    if identity is not None:
        name = stumbler(identity) or identity.oracle
        judges = (ORACLES.get(name),) if name not in _NOT_ORACLES else ()
    steps = tuple(TraceStep(event=event) for event in result.events)
    with opened(result.system) as target:
        name = target.spec or target.system.name
        trace = Trace(config=result.config, steps=steps, system=name, expected=identity)
        shown = show(trace, target.system, target.spec, OpenOptions(), judges)
    return plain(shown.lines())
