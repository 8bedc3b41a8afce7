"""`specfuzz corpus`: list, check and tidy the stored traces, bring old files up to date, make the seeds anew."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from specfuzz.cli.engines import one_torch_thread, opened, options_of, oracles_of
from specfuzz.cli.flags import Flags, with_flags
from specfuzz.cli.outcome import CANT_SAY, FINE, FOUND, MISSING, WRONG_USE, Outcome
from specfuzz.cli.streams import say
from specfuzz.cli.tables import columns, paragraph, report_width
from specfuzz.core.port import OpenOptions, open_system
from specfuzz.core.trace import Trace
from specfuzz.errors import UsageError

#: Where the traces of a checkout lie.
DEFAULT = "corpus"
#: Sessions per configuration from which seeds are chosen.
SEED_EXAMPLES = 20

_folder = click.argument("folder", metavar="[DIR]", default=DEFAULT)
_write = click.option("--write", is_flag=True, help="Do it; without, only say what would be done.")


@click.group("corpus", invoke_without_command=True)
@with_flags("json", "seed")
def command(flags: Flags) -> Outcome:
    """List, check and tidy a corpus (default: `corpus`), whose format `corpus/README.md` explains.

    Without a command it lists. Exit status 2 if a file can't be read; nothing is changed without --write.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return Outcome(verdict="holds", status=FINE)
    return listing(DEFAULT, flags.seed)


@command.command("list")
@_folder
@with_flags("json", "seed")
def list_traces(flags: Flags, folder: str) -> Outcome:
    """List the traces by owner: system, expected verdict, events."""
    return listing(folder, flags.seed)


def listing(folder: str, seed: int | None) -> Outcome:
    """Every trace of the corpus; a file that can't be read makes the status 2."""
    entries, problems = stored(folder)
    listed = [_described(path, trace) for path, trace in entries]
    rows = [(e["owner"], e["events"], e["system"], e["expected"]) for e in listed]
    owners = Counter(e["owner"] for e in listed)
    lines: list[Text | str] = [*columns(("owner", "events", "system", "expected"), rows), ""] if rows else []
    lines += [piece for problem in problems for piece in paragraph(problem, report_width())]
    counts = ", ".join(f"{count} {owner}" for owner, count in sorted(owners.items()))
    lines.append(f"{len(listed)} traces in {folder}: {counts or 'none'}")
    more = {"folder": folder, "traces": listed, "owners": dict(sorted(owners.items())), "problems": list(problems)}
    verdict, status = ("holds", FINE) if not problems else ("unknown", WRONG_USE)
    return Outcome(verdict=verdict, status=status, seed=seed, more=more, lines=lines)


@command.command("check")
@_folder
@with_flags("json", "oracles", "engine_path", "device", "step_timeout", "baseline", "seed")
def check(flags: Flags, folder: str) -> Outcome:
    """Replay everything: a regression fails on its mutant as recorded and holds on the clean engine, a seed holds.

    What was found where no bug is planted must hold there: it is fixed, or the baseline says why it is known.

    Exit status 1 if one doesn't, 2 if one can't be read, 3 if there is none, 4 if one needs an engine that isn't here.
    """
    from specfuzz.campaign.baseline import load_baseline
    from specfuzz.campaign.checking import check_corpus
    from specfuzz.trace.store import Stored

    baseline = load_baseline(flags.baseline)
    entries, problems = stored(folder)
    options, oracles = options_of(flags), oracles_of(flags)
    one_torch_thread()
    asked = [Stored(path=path, trace=trace) for path, trace in entries]
    checked = list(check_corpus(asked, lambda spec: open_system(spec, options), oracles, baseline))
    wrong, put_aside = [c for c in checked if c.passed is False], [c for c in checked if c.passed is None]
    known = [c for c in checked if c.known is not None]
    lines: list[Text | str] = []
    marks = (("FAILS ", "bold red", wrong), ("known ", "yellow", known), ("not checked ", "yellow", put_aside))
    for mark, style, some in marks:
        for one in some:
            lines.append(Text.assemble((mark, style), str(one.path)))
            for said in filter(None, (one.because, one.known)):
                lines += [Text("  " + line.plain) for line in paragraph(said, report_width() - 2)]
    lines += [piece for problem in problems for piece in paragraph(problem, report_width())]
    passed = len(checked) - len(wrong) - len(put_aside)
    verdict, status = "holds", FINE
    if wrong:
        verdict, status = "violated", FOUND
    elif problems or put_aside or not checked:
        verdict, status = "unknown", WRONG_USE if problems else MISSING if put_aside else CANT_SAY
    words = {"holds": ("HOLDS ", "bold green"), "violated": ("VIOLATED ", "bold red")}
    summary = f"{passed} of {len(checked)} traces in {folder} end as they should, {len(put_aside)} not checked"
    lines.append(Text.assemble(words.get(verdict, ("UNKNOWN ", "bold yellow")), summary))
    more = {
        "folder": folder, "problems": list(problems),
        "traces": [
            {"path": str(c.path), "passed": c.passed, "because": c.because, "baseline": c.known}
            for c in checked if c.passed is not None
        ],
        "not_checked": [{"path": str(c.path), "because": c.because} for c in put_aside],
    }  # fmt: skip
    return Outcome(verdict=verdict, status=status, seed=flags.seed, more=more, lines=lines)


@command.command("dedupe")
@_folder
@_write
@with_flags("json", "seed")
def dedupe(flags: Flags, folder: str, write: bool) -> Outcome:
    """Find several regressions of one identity on one system; with --write the shortest stays.

    Exit status 1 if there are any and nothing was written, 2 if a file can't be read.
    """
    from specfuzz.trace.store import CorpusStore
    from specfuzz.trace.upkeep import duplicates, remove

    listed = CorpusStore(_existing(folder)).load()
    found = duplicates(listed.entries)
    extra = [path for group in found for path in group.extra]
    if write:
        remove(extra)
    lines: list[Text | str] = [piece for problem in listed.problems for piece in paragraph(problem, report_width())]
    for group in found:
        lines += [f"{group.bug}: {group.kept} stays", *(f"  {path}" for path in group.extra)]
    lines.append(f"{len(extra)} traces {'removed' if write else 'too many'} in {folder}")
    more = {
        "folder": folder, "written": write, "problems": list(listed.problems),
        "duplicates": [{"bug": g.bug, "kept": str(g.kept), "extra": [str(path) for path in g.extra]} for g in found],
    }  # fmt: skip
    verdict, status = ("violated", FOUND) if found and not write else ("holds", FINE)
    if listed.problems:
        verdict, status = "unknown", WRONG_USE
    return Outcome(verdict=verdict, status=status, seed=flags.seed, more=more, lines=lines)


@command.command("migrate")
@_folder
@_write
@with_flags("json", "seed")
def migrate(flags: Flags, folder: str, write: bool) -> Outcome:
    """Bring every file to today's form of the format; what can't be is refused in a sentence.

    Exit status 2 if a file is refused, 1 if one is in an older form and nothing was written.
    """
    from specfuzz.trace.seeds import SeedStore
    from specfuzz.trace.store import CorpusStore, write_atomically
    from specfuzz.trace.upkeep import form_of

    root = _existing(folder)
    forms = [form_of(path) for path in (*CorpusStore(root).paths(), *SeedStore(root).paths())]
    older = [form for form in forms if form.state == "older"]
    refused = [form for form in forms if form.state == "refused"]
    for form in older if write else ():
        write_atomically(form.path, form.data)
    lines: list[Text | str] = [f"{'migrated' if write else 'older'}: {form.path}" for form in older]
    lines += [piece for form in refused for piece in paragraph(f"refused: {form.because}", report_width())]
    current = len(forms) - len(older) - len(refused)
    lines.append(
        f"{current} of {len(forms)} traces in {folder} were current, {len(older)} "
        f"{'migrated' if write else 'older'}, {len(refused)} refused"
    )
    more = {
        "folder": folder, "written": write, "current": current, "older": [str(form.path) for form in older],
        "refused": [{"path": str(form.path), "because": form.because} for form in refused],
    }  # fmt: skip
    verdict, status = "holds", FINE
    if refused or (older and not write):
        verdict, status = "violated", WRONG_USE if refused else FOUND
    return Outcome(verdict=verdict, status=status, seed=flags.seed, more=more, lines=lines)


@command.command("seeds")
@_folder
@_write
@with_flags("json", "seed", "max_examples")
def seeds(flags: Flags, folder: str, write: bool) -> Outcome:
    """Make seed traces of the reference: shrunk ones that reach every goal, and sessions that meet the goals elsewhere.

    --max-examples is per configuration. The same --seed makes the same seeds. With --write they replace those of the
    corpus; `mutants --smoke` uses them. Exit status 1 if a goal was not reached that some configuration can reach.
    """
    from specfuzz.campaign.covers import Factors, covering_configs
    from specfuzz.campaign.seeding import SeedPlan, make_seeds
    from specfuzz.core.oracle import ORACLES, REACHABLE
    from specfuzz.reference.algorithms import ALGORITHMS
    from specfuzz.trace.seeds import SeedStore

    seed = flags.seed if flags.seed is not None else 1  # fixed, so that everybody makes the same
    with opened("reference", OpenOptions()) as system:
        made = make_seeds(
            SeedPlan(
                system=system, configs=covering_configs(Factors(algorithms=ALGORITHMS.names())), seed=seed,
                oracles=tuple(ORACLES), goals=tuple(REACHABLE), examples=flags.max_examples or SEED_EXAMPLES,
                progress=say,
            )
        )  # fmt: skip
    store, kinds = SeedStore(folder), {"goals": made.goals, "situations": made.situations}
    paths: list[str] = []
    for kind, traces in kinds.items() if write else ():
        paths += map(str, store.replace(kind, traces))
    sizes = {kind: [len(trace.steps) for trace in traces] for kind, traces in kinds.items()}
    lines: list[Text | str] = [
        f"{len(lens)} seeds of {kind}, {sum(lens)} events{f' in {folder}' if write else ''}"
        for kind, lens in sizes.items()
    ]
    for word, names in (("not reached", made.unreached), ("beyond every configuration", made.unreachable)):
        lines += paragraph(f"{word}: {', '.join(names)}", report_width()) if names else []
    lines += [f"{made.missed} situations are left out"] if made.missed else []
    more = {
        "folder": folder, "written": paths, "events": sizes, "unreached": list(made.unreached),
        "unreachable": list(made.unreachable), "missed_situations": made.missed,
    }  # fmt: skip
    verdict, status = ("unknown", FOUND) if made.unreached else ("holds", FINE)
    return Outcome(verdict=verdict, status=status, seed=seed, more=more, lines=lines)


def stored(folder: str) -> tuple[list[tuple[Path, Trace]], tuple[str, ...]]:
    """Regressions and seeds of a corpus folder, and one sentence for each file that can't be read."""
    from specfuzz.trace.seeds import SeedStore
    from specfuzz.trace.store import CorpusStore

    root = _existing(folder)
    regressions, seeds_found = CorpusStore(root).load(), SeedStore(root).load()
    entries = [(entry.path, entry.trace) for entry in (*regressions.entries, *seeds_found.entries)]
    return entries, (*regressions.problems, *seeds_found.problems)


def _existing(folder: str) -> Path:
    if not Path(folder).is_dir():
        raise UsageError(f"there is no folder `{folder}`: name the corpus, as in `specfuzz corpus list DIR`.")
    return Path(folder)


def _described(path: Path, trace: Trace) -> dict[str, Any]:
    kind, owner = path.parts[-3], path.parts[-2]
    return {
        "path": str(path), "kind": kind, "owner": owner if kind != "seeds" else f"seeds/{owner}",
        "system": trace.system, "expected": "holds" if trace.expected is None else str(trace.expected),
        "events": len(trace.steps), "config": trace.config.label(), "note": trace.note,
    }  # fmt: skip
