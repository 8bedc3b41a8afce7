"""`specfuzz conform`: does a system keep the contract of the port, does an algorithm keep that of the reference?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from specfuzz.cli.engines import config_of, one_torch_thread, options_of
from specfuzz.cli.flags import ENGINE, Flags, with_flags
from specfuzz.cli.outcome import CANT_SAY, FINE, FOUND, Outcome
from specfuzz.cli.tables import paragraph, report_width
from specfuzz.core.port import SYSTEMS
from specfuzz.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from specfuzz.conformance import ConformanceReport

#: Fixed, so that two runs gather the same evidence.
SEED = 1


@click.command("conform")
@click.argument("subject", metavar="[SYSTEM|ALGORITHM]", default="")
@click.option("--clause", "clauses", multiple=True, metavar="NAME", help="Judge only this clause; may be repeated.")
@click.option("--list", "only_list", is_flag=True, help="List the clauses, check nothing.")
@with_flags("json", "max_time", *ENGINE, "engine_path", "device", "step_timeout", "seed")
def command(flags: Flags, subject: str, clauses: tuple[str, ...], only_list: bool) -> Outcome:
    """Check a system (reference, mutated:MUTANT, sglang, …) or an algorithm of the reference, clause by clause.

    A system is run over a spread of the configurations that it accepts, or over the one that flags describe. A clause
    that can't be judged for want of a capability is put aside, never passed. --max-time bounds the gathering of
    evidence. Exit status 0 if all that were judged pass, 1 otherwise, 3 if none could be, 4 if the engine is missing.
    """
    from specfuzz.conformance import run_algorithm_conformance, run_conformance
    from specfuzz.conformance.kit import MAX_TIME
    from specfuzz.reference.algorithms import ALGORITHMS

    if only_list:
        return _listing(flags.seed)
    if not subject:
        raise UsageError(
            "name a system or an algorithm, as in `specfuzz conform reference`; `--list` lists the clauses."
        )
    name = subject.partition(":")[0]
    fixed = any((flags.config, flags.algorithm, flags.overlap, flags.page_size is not None, flags.topk is not None))
    limit = MAX_TIME if flags.max_time is None else flags.max_time
    options, seed = options_of(flags), SEED if flags.seed is None else flags.seed
    one_torch_thread()
    if name in SYSTEMS:
        kind, report = "system", run_conformance(
            subject, config_of(flags) if fixed else None, clauses=clauses, options=options, max_time=limit, seed=seed
        )  # fmt: skip
    elif subject in ALGORITHMS:
        if fixed:
            raise UsageError(
                f"`{subject}` is an algorithm, which is checked over fixed configurations; leave them out."
            )
        kind, report = "algorithm", run_algorithm_conformance(
            subject, clauses=clauses, options=options, max_time=limit, seed=seed
        )  # fmt: skip
    else:
        from specfuzz.cli.main import did_you_mean

        known = [*SYSTEMS.names(), *ALGORITHMS.names()]
        raise UnknownName(
            f"there is no system or algorithm `{subject}`.{did_you_mean(subject, known)} Known: {', '.join(known)}."
        )
    verdict, status = ("holds", FINE) if report.passed else ("violated", FOUND)
    if not report.clauses:
        verdict, status = "unknown", CANT_SAY
    return Outcome(
        verdict=verdict, status=status, seed=seed, more=_keys(report, kind), lines=_lines(report, kind)
    )  # fmt: skip


def _listing(seed: int | None) -> Outcome:
    from specfuzz.conformance import CLAUSES
    from specfuzz.conformance.algorithm import CLAUSES as ALGORITHM_CLAUSES

    lines: list[Text | str] = []
    contract = []
    for of, declared in (("system", CLAUSES), ("algorithm", ALGORITHM_CLAUSES)):
        for clause in declared:
            contract.append({"name": clause.name, "of": of, "rule": clause.rule})
            lines.append(Text.assemble((clause.name, "bold"), f"  of {'a' if of == 'system' else 'an'} {of}"))
            lines += [Text("  " + line.plain) for line in paragraph(clause.rule, report_width() - 2)]
    lines += ["", f"{len(contract)} clauses"]
    more = {"contract": contract, "clauses": [], "not_applicable": []}
    return Outcome(verdict="holds", status=FINE, seed=seed, more=more, lines=lines)


def _keys(report: ConformanceReport, kind: str) -> dict[str, Any]:
    return {
        kind: report.subject, "subject_version": report.version, "events": report.events,
        "configs": [config.as_dict() for config in report.configs],
        "clauses": [{"name": c.name, "passed": c.passed, "because": c.because} for c in report.clauses],
        "not_applicable": [{"name": c.name, "because": c.because} for c in report.not_applicable],
    }  # fmt: skip


def _lines(report: ConformanceReport, kind: str) -> list[Text | str]:
    width = report_width()
    lines: list[Text | str] = []
    for clause in report.clauses:
        mark = ("passes  ", "green") if clause.passed else ("FAILS   ", "bold red")
        lines.append(Text.assemble(mark, (clause.name, "bold")))
        lines += [Text("        " + line.plain) for line in paragraph(clause.because, width - 8)]
    for put_aside in report.not_applicable:
        lines.append(Text.assemble(("n/a     ", "yellow"), (put_aside.name, "bold")))
        lines += [Text("        " + line.plain) for line in paragraph(put_aside.because, width - 8)]
    passed = len(report.clauses) - len(report.broken)
    mark = ("HOLDS ", "bold green") if report.passed else ("VIOLATED ", "bold red")
    if not report.clauses:
        mark = ("UNKNOWN ", "bold yellow")
    counts = f"{passed} of {len(report.clauses)} clauses pass, {len(report.not_applicable)} not applicable"
    summary = f"{kind} {report.subject}: {counts}; {report.events} events over {len(report.configs)} configurations"
    return [*lines, "", Text.assemble(mark, summary)]
