"""Runs a fuzz campaign in this process or, divided by configuration, in several; and joins what they report."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from specfuzz.cli.engines import opened
from specfuzz.cli.outcome import CANT_SAY
from specfuzz.core.config import EngineConfig
from specfuzz.core.oracle import ORACLES, REACHABLE, Oracle
from specfuzz.core.port import OpenOptions, System
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity
from specfuzz.errors import SpecfuzzError

if TYPE_CHECKING:
    from specfuzz.campaign.fuzz import Finding, FuzzReport

A = TypeVar("A")
R = TypeVar("R")


class WorkerDied(SpecfuzzError):
    """A process of `--jobs` died; nothing can be said about its part."""

    exit_status = CANT_SAY


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
    return joined(errand, in_processes(run_errand, parts, jobs))


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
            order=roots_first, progress=say,
        )  # fmt: skip
        return run_fuzz(plan)


def shrunk(trace: Trace, system: System, oracles: Sequence[Oracle]) -> Trace:
    """The shrinker as campaigns want it."""
    from specfuzz.trace.shrink import shrink_trace

    return shrink_trace(trace, system, oracles)[0]


def say(line: str) -> None:
    """One line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def in_processes(work: Callable[[A], R], parts: Sequence[A], jobs: int) -> list[R]:
    """Results in order of parts; an interrupt or an error ends the other processes too."""
    context = multiprocessing.get_context("spawn")
    workers = min(jobs, len(parts))
    with ProcessPoolExecutor(max_workers=workers, mp_context=context, initializer=_leave_interrupts_to_parent) as pool:
        futures = [pool.submit(work, part) for part in parts]
        try:
            return [future.result() for future in futures]
        except BrokenProcessPool:
            raise WorkerDied("a worker process died; run it again with `--jobs 1` to see why.") from None
        except BaseException:
            for future in futures:
                future.cancel()
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


def _leave_interrupts_to_parent() -> None:
    """Ctrl-C reaches the whole group; the parent ends its workers, and one traceback per worker helps nobody."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


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
    )  # fmt: skip


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for count in counts:
        for name, value in count.items():
            total[name] = total.get(name, 0) + value
    return total
