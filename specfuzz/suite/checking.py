"""One machine's run: its stored failures first, then new examples; what it came to, with a report of each failure."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis.database import ExampleDatabase
from rich.text import Text

from specfuzz.campaign.fuzz import Finding, FuzzPlan, FuzzReport, run_fuzz
from specfuzz.campaign.showing import commands_of, show
from specfuzz.core.judge import Tally
from specfuzz.core.oracle import REACHABLE, Oracle
from specfuzz.core.port import OpenOptions, System
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity, Violation
from specfuzz.errors import ConfigError, EngineFault
from specfuzz.oracles.implications import roots_first
from specfuzz.report.text import plain, render_failure, render_fault
from specfuzz.suite.failures import FailureStore, Kept
from specfuzz.suite.machine import Plan
from specfuzz.suite.settings import Settings
from specfuzz.suite.systems import Opened, OpenSystems, opened
from specfuzz.suite.totals import applied_of
from specfuzz.trace.replay import fault_identity, replay_trace
from specfuzz.trace.shrink import shrink_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One broken rule. text: the whole report. known: why the baseline explains it. path: of its trace."""

    identity: Identity
    text: str
    known: str | None = None
    path: Path | None = None


@dataclass(slots=True, kw_only=True)
class MachineReport:
    """What a run came to. doubt: why nothing can be said, although nothing was broken. problems: one sentence each.

    examples, events: newly generated. replayed: stored failures. applied: by oracle. left_out: how many configurations
    the system refuses, and its first reason.
    """

    failures: list[Failure] = field(default_factory=list)
    doubt: str | None = None
    examples: int = 0
    events: int = 0
    replayed: int = 0
    applied: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    left_out: str | None = None

    @property
    def broken(self) -> list[Failure]:
        """The failures that no baseline explains."""
        return [failure for failure in self.failures if failure.known is None]


def check(
    plan: Plan,
    settings: Settings,
    *,
    test: str,
    again: str,
    database: ExampleDatabase | None = None,
    pool: OpenSystems | None = None,
) -> MachineReport:
    """Run a machine; a stored failure that still fails ends the run, and nothing new is generated.

    test: its name, by which failures are kept. again: the command that runs it once more. database: keeps failures
    besides the corpus. pool: where named systems stay open. Raises ConfigError if the system can run none of the
    configurations, UnknownName, UsageError, or MissingPart if the system isn't here.
    """
    oracles = plan.chosen_oracles()
    store = FailureStore(settings.corpus, test, database)
    with opened(plan.system, pool) as target:
        run = _Run(plan, settings, target, oracles, store, test, again)
        run.replay()
        if not run.report.broken:
            run.fuzz()
        return run.report


class _Run:
    """State of one check."""

    def __init__(
        self, plan: Plan, settings: Settings, target: Opened, oracles: Sequence[Oracle], store: FailureStore,
        test: str, again: str,
    ) -> None:  # fmt: skip
        self.plan, self.settings, self.oracles, self.store = plan, settings, oracles, store
        self.system, self.spec = target.system, target.spec
        self.test, self.again = test, again
        self.report = MachineReport()

    # ------------------------------------------------------------------ what was found before
    def replay(self) -> None:
        stored, problems = self.store.load()
        self.report.problems += problems
        for kept in stored:
            try:
                ended = self._replayed(kept)
            except ConfigError as error:
                self.report.problems.append(f"`{_shown(kept.path)}` was not replayed: {error}")
                continue
            self.report.replayed += 1
            if ended is None:
                self.store.forget(kept.trace)
                continue
            trace = replace(kept.trace, expected=ended.identity)
            how = "before, and stored: it was replayed first, and no new example was generated"
            self._fail(trace, ended, kept.path or self._kept(trace), how)

    def _replayed(self, kept: Kept) -> Ended | None:
        tally = Tally()
        try:
            replay = replay_trace(kept.trace, self.system, self.oracles, tally=tally, same_system=True)
        except EngineFault as fault:
            return Ended(identity=fault_identity(fault), fault=fault)  # it did not even start
        self._count(applied_of(tally))
        if replay.got is None:
            return None
        return Ended(identity=replay.got, violations=replay.violations, fault=replay.fault)

    # ------------------------------------------------------------------ what is new
    def fuzz(self) -> None:
        profile = self.settings.profile_for(self.plan.profile)
        report = run_fuzz(
            FuzzPlan(
                system=self.system, configs=self.plan.configs(), oracles=self.oracles, goals=tuple(REACHABLE),
                seed=self.settings.seed, max_examples=profile.max_examples, profile=profile, order=roots_first,
                # Where some findings are known, the first one may be among them, and others wait behind it.
                stop_at_first=not self.settings.baseline.entries, shrink=_shrunk,
            )
        )  # fmt: skip
        self.report.examples, self.report.events = report.examples, report.events
        self._count({name: count["applied"] for name, count in report.oracles.items()})
        if report.refused:
            self.report.left_out = (
                f"{len(report.refused)} of {len(report.configs)} configurations; the first: {report.refused[0][1]}"
            )
        for finding in report.findings:
            self._found(finding)
        if report.interrupted:
            raise KeyboardInterrupt  # what was found until then is stored
        if report.error is not None:
            self.report.problems.append(f"the search ended early: {report.error}")
        if not report.findings:
            self.report.doubt = self._doubt(report)

    def _found(self, finding: Finding) -> None:
        trace = replace(finding.trace, system=self._name, note=f"found by {self.test}")
        how = f"in example {finding.examples} of seed {self.settings.seed}"
        path = None
        if self._reason(finding.identity) is None:
            path = self._kept(trace)
            how += "; stored: the next run replays it first" if path is not None else ""
        fault = None if finding.fault is None else EngineFault(finding.fault)
        self._fail(trace, Ended(identity=finding.identity, violations=finding.violations, fault=fault), path, how)

    def _doubt(self, report: FuzzReport) -> str | None:
        if not report.examples:
            return "UNKNOWN: no example ended, so nothing was judged."
        silent = [name for name in self.plan.oracles or () if not self.report.applied[name]]
        if not silent:
            return None
        return (
            f"UNKNOWN: `{'`, `'.join(silent)}` had nothing to judge in {report.examples} examples of "
            f"`{self._name}`. Run more examples, or another configuration, or don't ask for it by name."
        )

    # ------------------------------------------------------------------ failures
    @property
    def _name(self) -> str:
        return self.spec or self.system.name

    def _count(self, applied: dict[str, int]) -> None:
        for name, times in applied.items():
            self.report.applied[name] += times

    def _reason(self, identity: Identity) -> str | None:
        return self.settings.baseline.reason(identity, self._name, self.system.version)

    def _kept(self, trace: Trace) -> Path | None:
        path, problem = self.store.keep(trace)
        if problem is not None:
            self.report.problems.append(problem)
        return path

    def _fail(self, trace: Trace, ended: Ended, path: Path | None, how: str) -> None:
        known = self._reason(ended.identity)
        # By file only where the file names this very system.
        file = None if path is None or trace.system != self._name else _shown(path)
        shown = show(trace, self.system, self.spec, OpenOptions(), self.oracles)
        if shown.identity is not None:
            lines = shown.lines(path=file, known=known, more=[self.again])
        else:
            lines = ended.lines(trace, [*commands_of(trace, self.spec, file), self.again], known)
            how += "; it did not come about again just now: the system is not deterministic"
        text = f"{plain(lines)}\nfound      {how}"
        self.report.failures.append(Failure(identity=ended.identity, text=text, known=known, path=path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a run of a trace ended in: violations, the one that is spoken about among them, or a fault."""

    identity: Identity
    violations: tuple[Violation, ...] = ()
    fault: EngineFault | None = None

    def lines(self, trace: Trace, replay: Sequence[str], known: str | None) -> list[Text]:
        """The report without the clocks, for what doesn't come about again."""
        violation = next((v for v in self.violations if v.identity == self.identity), None)
        if violation is None:
            return render_fault(self.fault or "", trace.events, replay=replay, known=known)
        return render_failure(violation, trace.events, replay=replay, known=known)


def _shrunk(trace: Trace, system: System, oracles: Sequence[Oracle]) -> Trace:
    return shrink_trace(trace, system, oracles)[0]


def _shown(path: Path | None) -> str:
    """Relative to where the user stands, if it lies below."""
    if path is None:
        return "the example database"
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
