"""A corpus file as a test: a planted bug is still found and its clean system holds; everything else must hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specfuzz.campaign.baseline import Baseline
from specfuzz.campaign.showing import clean_twin, show
from specfuzz.core.judge import Tally
from specfuzz.core.oracle import ORACLES
from specfuzz.core.port import OpenOptions, System
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity, Verdict
from specfuzz.errors import EngineFault
from specfuzz.report.text import plain
from specfuzz.suite.systems import OpenSystems
from specfuzz.trace.replay import Replay, fault_identity, replay_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a trace came to. because: the report of why it failed, None if it passed. identity: what was violated then.

    known: why the baseline explains that.
    """

    because: str | None = None
    identity: Identity | None = None
    known: str | None = None


def judge_trace(trace: Trace, path: str, *, pool: OpenSystems, baseline: Baseline, tally: Tally) -> Judged:
    """Replay a corpus trace on the system that it names. path: how messages call its file.

    Raises UnknownName for a system or a mutant that isn't there, ConfigError if it can't run the configuration, or
    MissingPart if an engine isn't on this machine.
    """
    twin = clean_twin(trace.system)
    if trace.expected is None or twin is None:
        return _must_hold(trace, path, trace.system, pool, baseline, tally)
    replay = _replayed(trace, pool.get(trace.system), tally)
    if isinstance(replay, Identity) or not replay.came_about:
        return Judged(because=_other_verdict(trace, path, replay))
    return _must_hold(trace, path, twin, pool, baseline, tally)


def _must_hold(
    trace: Trace, path: str, spec: str, pool: OpenSystems, baseline: Baseline, tally: Tally
) -> Judged:  # fmt: skip
    system = pool.get(spec)
    replay = _replayed(trace, system, tally)
    found = replay if isinstance(replay, Identity) else replay.got
    if found is None:
        assert isinstance(replay, Replay)
        if trace.expected is None and not replay.came_about:
            return Judged(because=_other_verdict(trace, path, replay))
        if replay.verdict is Verdict.UNKNOWN:
            return Judged(because=f"UNKNOWN: no oracle had anything to judge in `{path}`.")
        return Judged()
    known = baseline.reason(found, spec, system.version)
    shown = show(replace(trace, expected=found), system, spec, OpenOptions(), tuple(ORACLES))
    file = path if spec == trace.system else None
    return Judged(because=plain(shown.lines(path=file, known=known)), identity=found, known=known)


def _replayed(trace: Trace, system: System, tally: Tally) -> Replay | Identity:
    try:
        return replay_trace(trace, system, tuple(ORACLES), tally=tally)
    except EngineFault as fault:
        return fault_identity(fault)  # it did not even start


def _other_verdict(trace: Trace, path: str, replay: Replay | Identity) -> str:
    got = replay if isinstance(replay, Identity) else replay.got
    lines = [f"NOT AS EXPECTED `{path}` on {trace.system}: expected {trace.expected or 'holds'}, got {got or 'holds'}"]
    if isinstance(replay, Replay) and replay.divergence is not None:
        lines.append(str(replay.divergence))
    return "\n".join([*lines, f"replay     specfuzz replay {path}"])
