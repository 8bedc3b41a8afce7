"""`specfuzz replay`: run a trace again and check that its verdict comes about."""

from __future__ import annotations

import click
from rich.text import Text

from specfuzz.campaign.baseline import load_baseline
from specfuzz.cli.engines import opened, options_of, oracles_of
from specfuzz.cli.findings import show_found
from specfuzz.cli.flags import ENGINE, OPENING, Flags, with_flags
from specfuzz.cli.interrupts import defer, interrupted_status, stop_asked
from specfuzz.cli.outcome import CANT_SAY, FINE, FOUND, Outcome
from specfuzz.cli.targets import Target, read_target
from specfuzz.core.notation import format_event
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity, Verdict
from specfuzz.trace.replay import Repeats, Replay, replay_many


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
    from specfuzz.oracles.implications import roots_first  # here: `--help` of a verb shall not load every oracle

    wanted = read_target(target, flags)
    oracles, options, baseline = oracles_of(flags), options_of(flags), load_baseline(flags.baseline)
    lines: list[Text | str] = []
    entries = []
    known: str | None = None
    with opened(wanted.system, options) as system:
        defer()
        repeats = replay_many(wanted.trace, system, oracles, repeat=repeat, stop=stop_asked, order=roots_first)
        first = repeats.first
        if first.got is not None:
            shown = show_found(
                first.trace, wanted.system, options, oracles, violations=first.violations, fault=first.fault,
                system=system,
            )  # fmt: skip
            known = baseline.reason(first.got, wanted.system, system.version)
            lines = [*shown.lines(path=wanted.path, known=known), Text()]
            entries = [shown.entry(path=wanted.path, known=known)]
    expected = None if wanted.elsewhere else wanted.trace.expected
    came_about = first.got == expected and (wanted.elsewhere or first.divergence is None) and repeats.deterministic
    status = FINE if came_about or (known is not None and repeats.deterministic) else FOUND
    if first.verdict is Verdict.UNKNOWN:
        status = CANT_SAY
    lines += _summary(wanted, repeats, expected, status)
    more = {
        "system": wanted.system, "events": first.applied, "skipped": first.skipped, "expected": _word(expected),
        "got": _word(first.got), "digest": first.digest, "digests": list(repeats.digests), "repeats": repeats.repeats,
        "divergence": None if first.divergence is None else str(first.divergence),
    }  # fmt: skip
    return Outcome(
        verdict=str(first.verdict), status=interrupted_status() or status,
        seed=wanted.trace.seed if flags.seed is None else flags.seed,
        violations=entries, more=more, lines=lines,
    )  # fmt: skip


def _word(identity: Identity | None) -> str:
    return "holds" if identity is None else str(identity)


def _summary(wanted: Target, repeats: Repeats, expected: Identity | None, status: int) -> list[Text | str]:
    first = repeats.first
    lines: list[Text | str]
    if status == CANT_SAY:
        lines = [Text.assemble(("UNKNOWN ", "bold yellow"), f"{wanted.name} on {wanted.system}: no oracle applied")]
        return [*lines, *([_not_applied(wanted.trace, first)] if first.skipped else [])]
    mark = ("AS EXPECTED ", "bold green") if status == FINE else ("NOT AS EXPECTED ", "bold red")
    lines = [
        Text.assemble(mark, f"{wanted.name} on {wanted.system}: expected {_word(expected)}, got {_word(first.got)}")
    ]
    if first.divergence is not None and not wanted.elsewhere:
        lines.append(str(first.divergence))
    if first.skipped:
        lines.append(_not_applied(wanted.trace, first))
    if not repeats.deterministic:
        digests = ", ".join(repeats.digests[:4])
        lines.append(f"NOT DETERMINISTIC: {len(repeats.digests)} digests in {repeats.repeats} replays: {digests}")
    times = f", {repeats.repeats} times" if repeats.repeats > 1 and repeats.deterministic else ""
    return [*lines, f"{first.applied} events, digest {first.digest}{times}"]


def _not_applied(trace: Trace, replay: Replay) -> str:
    """How many events were not applied, and the first of them: not legal there, or behind what ended the run."""
    events, applied = trace.events, replay.trace.events
    at = next((at for at, pair in enumerate(zip(events, applied, strict=False)) if pair[0] != pair[1]), len(applied))
    count = f"{replay.skipped} of {len(events)} events were not applied"
    if not replay.applied and replay.fault is not None:
        return f"{count}: the engine failed before the first"
    ended = at == len(applied) and replay.got is not None
    why = "the run had ended" if ended else "it was not legal there"
    return f"{count}, first `{format_event(events[at])}`: {why}"
