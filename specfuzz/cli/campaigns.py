"""Runs a fuzz campaign in this process or, divided by configuration, in several; and joins what they report."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn, TypeVar

from specfuzz.cli.engines import opened
from specfuzz.cli.interrupts import defer, interrupted_status, leave_to_parent, passed_on, stop_asked
from specfuzz.cli.outcome import CANT_SAY, INTERRUPTED
from specfuzz.cli.streams import say
from specfuzz.core.config import EngineConfig
from specfuzz.core.oracle import ORACLES, REACHABLE, Oracle
from specfuzz.core.port import OpenOptions, System
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity
from specfuzz.errors import ConfigError, SpecfuzzError

if TYPE_CHECKING:
    from specfuzz.campaign.fuzz import Finding, FuzzReport

A = TypeVar("A")
R = TypeVar("R")


class Failed(SpecfuzzError):
    """A campaign ended early, and it was not the user's mistake."""

    exit_status = CANT_SAY


class WorkerDied(SpecfuzzError):
    """A process of `--jobs` died; nothing can be said about its part."""

    exit_status = CANT_SAY


class WorkerStopped(SpecfuzzError):
    """A process of `--jobs` was ended by a second signal; what it had is lost, and what others have handed in isn't."""

    def __init__(self) -> None:
        """The status is the signal's."""
        super().__init__("interrupted twice: the parts of the campaign that had not been reported by then are lost.")
        self.exit_status = interrupted_status() or INTERRUPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """A campaign as plain data, so that it can be sent to another process. oracles: names; profile: name."""

    system: str
    options: OpenOptions
    configs: tuple[EngineConfig, ...]
    oracles: tuple[str, ...]
    seed: int
    max_examples: int | None
    max_time: float | None
    profile: str
    stop_at_first: bool = False


def run(errand: Errand, jobs: int = 1) -> FuzzReport:
    """Run the campaign; of several jobs each walks every jobs-th configuration, with the same seeds and budgets."""
    parts = divided(errand, jobs)
    if len(parts) == 1:
        return run_errand(errand)
    results = in_processes(run_errand, parts, jobs)
    reports = [result for result in results if not isinstance(result, SpecfuzzError)]
    report = joined(errand, reports or [no_report(results)])
    refused, error = list(report.refused), report.error
    for part, result in zip(parts, results, strict=True):
        if isinstance(result, ConfigError):  # of this part the system can run nothing
            refused += [(config, str(result)) for config in part.configs]
        elif isinstance(result, SpecfuzzError):
            error = error or result
    return replace(report, refused=tuple(refused), error=error, interrupted=report.interrupted or stop_asked())


def run_errand(errand: Errand) -> FuzzReport:
    """One campaign in this process; progress goes to stderr."""
    from specfuzz.campaign.fuzz import FuzzPlan, run_fuzz
    from specfuzz.oracles.implications import roots_first
    from specfuzz.state_machine.profiles import profile_of

    with opened(errand.system, errand.options) as system:
        say(f"{errand.system}, seed {errand.seed}, {len(errand.configs)} configurations")  # also if it is interrupted
        plan = FuzzPlan(
            system=system, configs=errand.configs, oracles=tuple(ORACLES.get(name) for name in errand.oracles),
            goals=tuple(REACHABLE), seed=errand.seed, max_examples=errand.max_examples, max_time=errand.max_time,
            profile=profile_of(errand.profile), stop_at_first=errand.stop_at_first, shrink=shrunk,
            order=roots_first, stop=stop_asked, progress=say,
        )  # fmt: skip
        defer()  # not before the engine is there: until then there is nothing to lose and long to wait
        report = run_fuzz(plan)
    return replace(report, error=sayable(report.error))


def shrunk(trace: Trace, system: System, oracles: Sequence[Oracle]) -> Trace:
    """The shrinker as campaigns want it."""
    from specfuzz.trace.shrink import shrink_trace

    return shrink_trace(trace, system, oracles, stop=stop_asked)[0]


def sayable(error: Exception | None) -> SpecfuzzError | None:
    """What ended a campaign early, fit to travel between processes; where it is our own failure, stderr says where."""
    if error is None or isinstance(error, SpecfuzzError):
        return error
    traceback.print_exception(error)
    return Failed(f"specfuzz itself failed: {error!r}. Please report it.")


def in_processes(work: Callable[[A], R], parts: Sequence[A], jobs: int) -> list[R | SpecfuzzError]:
    """What came of each part; workers learn of a first signal, and a second one or our own failure ends them.

    Where a second signal ends some, the others' results stay; raises KeyboardInterrupt where there are none.
    """
    context = multiprocessing.get_context("spawn")
    flag = context.Value("b", 0, lock=False)
    defer()
    with (
        passed_on(flag),
        ProcessPoolExecutor(min(jobs, len(parts)), context, leave_to_parent, (flag,)) as pool,
    ):
        futures: list[Future[R]] = [pool.submit(work, part) for part in parts]
        try:
            return list(map(_outcome, futures))
        except BaseException as error:
            done = [future for future in futures if future.done() and not future.exception()]
            for future in futures:
                future.cancel()
            for worker in multiprocessing.active_children():
                worker.kill()
            if not done or not isinstance(error, KeyboardInterrupt):
                raise
            return [future.result() if future in done else WorkerStopped() for future in futures]


def _outcome(future: Future[R]) -> R | SpecfuzzError:
    try:
        return future.result()
    except SpecfuzzError as error:
        return error
    except BrokenProcessPool:
        return WorkerDied("a worker process died; run it again with `--jobs 1` to see why.")


def no_report(results: Sequence[object]) -> NoReturn:
    """Raise the first error, where every part ended in one."""
    raise next(result for result in results if isinstance(result, SpecfuzzError))


def divided(errand: Errand, jobs: int) -> list[Errand]:
    """Every jobs-th configuration each, with exactly the budget that it has in the whole."""
    jobs = min(jobs, len(errand.configs)) or 1
    if errand.max_examples is None:
        return [replace(errand, configs=errand.configs[at::jobs]) for at in range(jobs)]
    share, rest = divmod(errand.max_examples, max(len(errand.configs), 1))
    budgets = [share + (index < rest) for index in range(len(errand.configs))]
    parts = [
        replace(errand, configs=errand.configs[at::jobs], max_examples=sum(budgets[at::jobs])) for at in range(jobs)
    ]
    return [part for part in parts if part.max_examples] or [errand]


def joined(errand: Errand, reports: Sequence[FuzzReport]) -> FuzzReport:
    """One report of several; of findings with one identity the shortest trace stays."""
    findings: dict[Identity, Finding] = {}
    for finding in (finding for report in reports for finding in report.findings):
        known = findings.get(finding.identity)
        if known is None or len(finding.trace.steps) < len(known.trace.steps):
            findings[finding.identity] = finding
    examples = sum(report.examples for report in reports)
    lazy = sum(report.lazy_share * report.examples for report in reports)
    oracles = {name: _added(report.oracles.get(name, {}) for report in reports) for name in errand.oracles}
    return replace(
        reports[0], configs=errand.configs, examples=examples, events=sum(report.events for report in reports),
        algorithms=tuple(dict.fromkeys(config.algorithm for config in errand.configs)),
        skipped=sum(report.skipped for report in reports), seconds=max(report.seconds for report in reports),
        oracles=oracles, reached=_added(report.reached for report in reports),
        not_exercised=tuple(name for name, count in oracles.items() if not count.get("applied")),
        lazy_share=lazy / examples if examples else 0.0, findings=tuple(findings.values()),
        compared=_added(report.compared for report in reports),
        refused=tuple(refusal for report in reports for refusal in report.refused),
        interrupted=any(report.interrupted for report in reports),
        error=next((report.error for report in reports if report.error is not None), None),
    )  # fmt: skip


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for count in counts:
        for name, value in count.items():
            total[name] = total.get(name, 0) + value
    return total
