"""`specfuzz replay`: run a trace again and check that its verdict comes about."""

from __future__ import annotations

import click
from rich.text import Text

from specfuzz.cli.baseline import load_baseline
from specfuzz.cli.engines import opened, options_of, oracles_of
from specfuzz.cli.findings import failure_lines, fault_entry, fault_lines, violation_entry
from specfuzz.cli.flags import ENGINE, OPENING, Flags, with_flags
from specfuzz.cli.outcome import CANT_SAY, FINE, FOUND, Outcome
from specfuzz.cli.targets import Target, read_target
from specfuzz.core.port import System
from specfuzz.core.verdict import Identity, Verdict


@click.command("replay")
@click.argument("target", metavar="FILE|NOTATION")
@click.option(
    "--repeat", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="Times; one digest is due."
)
@with_flags("json", *OPENING, *ENGINE, "oracles", "baseline", "seed")
def command(flags: Flags, target: str, repeat: int) -> Outcome:
    """Replay a trace file, or a line of events such as "submit(a,5,12) prefill(a) settle prepare verify(a=3) settle".

    Exit status 0 if the expected verdict came about, with the same digest every time; on another system than the
    recorded one (--system) and for notation `holds` is expected.
    """
    wanted = read_target(target, flags)
    oracles = oracles_of(flags)
    options = options_of(flags)
    load_baseline(flags.baseline)
    with opened(wanted.system, options) as system:
        from specfuzz.trace.replay import replay_many

        repeats = replay_many(wanted.trace, system, oracles, repeat=repeat)
        first = repeats.first
        expected = None if wanted.elsewhere else first.expected
        lines: list[Text | str] = []
        for violation in first.violations[:1]:
            lines += failure_lines(violation, first.trace, system, wanted.system, options, path=wanted.path)
        if first.fault is not None:
            lines += fault_lines(first.fault, first.trace, system, wanted.system, path=wanted.path)
        entries = [
            violation_entry(v, first.trace, path=wanted.path, known=_known(v.identity, system, flags))
            for v in first.violations
        ]
        if first.fault is not None:
            entries.append(fault_entry(first.fault, first.trace, path=wanted.path))
        known = bool(entries) and all(entry["baseline"] is not None for entry in entries)
    came_about = first.came_about and repeats.deterministic
    unjudged = first.verdict is Verdict.UNKNOWN
    status = CANT_SAY if unjudged else FINE if came_about or (known and repeats.deterministic) else FOUND
    lines.append("" if lines else Text())
    lines += _summary(wanted, expected, first.got, came_about, unjudged)
    if first.divergence is not None and first.same_system:
        lines.append(str(first.divergence))
    if first.skipped:
        lines.append(f"{first.skipped} of {len(wanted.trace.steps)} events were not legal here and were skipped")
    if not repeats.deterministic:
        lines.append(
            f"{len(repeats.digests)} different digests in {repeats.repeats} replays: {', '.join(repeats.digests[:4])}"
        )
    lines.append(
        f"digest {first.digest}"
        + (f", {repeats.repeats} times" if repeats.repeats > 1 and repeats.deterministic else "")
    )
    more = {
        "system": wanted.system, "events": first.applied, "skipped": first.skipped, "expected": _word(expected),
        "got": _word(first.got), "digest": first.digest, "digests": list(repeats.digests), "repeats": repeats.repeats,
        "divergence": None if first.divergence is None else str(first.divergence),
    }  # fmt: skip
    verdict = str(first.verdict)
    return Outcome(
        verdict=verdict, status=status, seed=wanted.trace.seed if flags.seed is None else flags.seed,
        violations=entries, more=more, lines=lines,
    )  # fmt: skip


def _known(identity: Identity, system: System, flags: Flags) -> str | None:
    return load_baseline(flags.baseline).reason(identity, system.name, system.version)


def _word(identity: Identity | None) -> str:
    return "holds" if identity is None else str(identity)


def _summary(
    wanted: Target, expected: Identity | None, got: Identity | None, came_about: bool, unjudged: bool
) -> list[Text]:
    if unjudged:
        return [Text.assemble(("UNKNOWN ", "bold yellow"), f"{wanted.name} on {wanted.system}: no oracle applied")]
    mark = ("AS EXPECTED ", "bold green") if came_about else ("NOT AS EXPECTED ", "bold red")
    return [Text.assemble(mark, f"{wanted.name} on {wanted.system}: expected {_word(expected)}, got {_word(got)}")]
