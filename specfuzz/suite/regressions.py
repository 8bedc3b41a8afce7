"""A corpus file as a test: it comes to what it owes, or fails with the report of what came about instead."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specfuzz.campaign.baseline import Baseline
from specfuzz.campaign.checking import Shortfall, shortfall
from specfuzz.campaign.showing import show
from specfuzz.core.judge import Tally
from specfuzz.core.oracle import ORACLES
from specfuzz.core.port import OpenOptions
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity, Verdict
from specfuzz.report.text import plain
from specfuzz.suite.systems import OpenSystems


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFailure:
    """Why a trace failed. identity: what was violated where nothing may be. known: why the baseline explains that."""

    because: str
    identity: Identity | None = None
    known: str | None = None


def judge_trace(
    trace: Trace, path: str, *, pool: OpenSystems, baseline: Baseline, tally: Tally
) -> TraceFailure | None:  # fmt: skip
    """Replay a corpus trace where it owes something; None if it came to that. path: how messages call its file.

    Raises UnknownName for a system or a mutant that isn't there, ConfigError if it can't run the configuration, or
    MissingPart if an engine isn't on this machine.
    """
    short = shortfall(trace, pool.get, tuple(ORACLES), baseline=baseline, tally=tally)
    if short is None:
        return None
    replay, found = short.replay, short.found
    if replay.expected is None and found is not None:
        shown = show(replace(trace, expected=found), pool.get(short.spec), short.spec, OpenOptions(), tuple(ORACLES))
        file = path if short.spec == trace.system else None
        text = plain(shown.lines(path=file, known=short.known))
        return TraceFailure(because=text, identity=found, known=short.known)
    if replay.came_about and replay.verdict is Verdict.UNKNOWN:
        return TraceFailure(because=f"UNKNOWN: no oracle had anything to judge in `{path}`.")
    return TraceFailure(because=_other_verdict(short, path))


def _other_verdict(short: Shortfall, path: str) -> str:
    replay = short.replay
    wanted, got = replay.expected or "holds", short.found or "holds"
    lines = [f"NOT AS EXPECTED `{path}` on {short.spec}: expected {wanted}, got {got}"]
    if replay.divergence is not None:
        lines.append(str(replay.divergence))
    return "\n".join([*lines, f"replay     specfuzz replay {path}"])
