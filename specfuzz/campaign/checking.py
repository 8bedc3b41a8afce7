"""What a stored trace owes, and whether it still comes to that; `corpus check` and corpus files in pytest ask here.

- Without a violation in its header it holds on its system, along the recorded way.
- Recorded on a planted bug, it fails there as recorded, and holds on the clean engine.
- Any other violation was a bug of the system itself: the trace holds there once that is fixed, and until then it is
  wrong, unless a baseline explains what is found. The way may be another one, since the engine has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from specfuzz.campaign.baseline import Baseline
from specfuzz.campaign.showing import clean_twin
from specfuzz.core.judge import Tally
from specfuzz.core.oracle import Oracle
from specfuzz.core.port import System
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity, Verdict
from specfuzz.errors import MissingPart, UsageError
from specfuzz.trace.replay import Replay, replay_trace
from specfuzz.trace.store import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One stored trace. passed: None where its system isn't on this machine. because: what was seen, in a sentence.

    known: why a baseline explains what was found instead; it has passed then.
    """

    path: Path
    passed: bool | None
    because: str
    known: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The first run that a trace owes and that came to something else. spec: on which system.

    found: what it came to, the header's own violation where that is among several. known: why the baseline explains it.
    """

    spec: str
    replay: Replay
    found: Identity | None
    known: str | None = None


def runs_owed(trace: Trace) -> tuple[tuple[str, bool], ...]:
    """(system, as recorded) of each run: as its header says and along the recorded way, or else it holds in any way."""
    if trace.expected is None:
        return ((trace.system, True),)
    twin = clean_twin(trace.system)
    return ((trace.system, False),) if twin is None else ((trace.system, True), (twin, False))


def shortfall(
    trace: Trace,
    system_of: Callable[[str], System],
    oracles: Sequence[Oracle],
    *,
    baseline: Baseline,
    tally: Tally | None = None,
) -> Shortfall | None:
    """Where a stored trace comes to something else than it owes, None if it doesn't; UNKNOWN is something else, too.

    system_of: an open system by name. Raises what that raises, and ConfigError if one can't run the configuration.
    """
    for spec, as_recorded in runs_owed(trace):
        system = system_of(spec)
        replay = replay_trace(trace, system, oracles, tally=tally, same_system=as_recorded)
        if replay.came_about and replay.verdict is not Verdict.UNKNOWN:
            continue
        among = any(violation.identity == trace.expected for violation in replay.violations)
        found, known = trace.expected if among else replay.got, None
        if replay.expected is None and found is not None:
            known = baseline.reason(found, spec, system.version)
        return Shortfall(spec=spec, replay=replay, found=found, known=known)
    return None


def check_corpus(
    entries: Iterable[Stored],
    open_system: Callable[[str], System],
    oracles: Sequence[Oracle],
    baseline: Baseline | None = None,
) -> Iterator[Checked]:
    """Check each trace on every system on which it owes something.

    open_system: by name as on the command line; every system is opened once and closed at the end.
    """
    with ExitStack() as stack:
        opened: dict[str, System | UsageError | MissingPart] = {}

        def system_of(spec: str) -> System:
            if spec not in opened:
                try:
                    opened[spec] = open_system(spec)
                    stack.callback(opened[spec].close)  # type: ignore[union-attr]
                except (UsageError, MissingPart) as error:
                    opened[spec] = error
            found = opened[spec]
            if isinstance(found, UsageError | MissingPart):
                raise found
            return found

        for entry in entries:
            try:
                short = shortfall(entry.trace, system_of, oracles, baseline=baseline or Baseline())
            except MissingPart as error:
                yield Checked(path=entry.path, passed=None, because=str(error))
            except UsageError as error:  # the mutant has gone, or the engine no longer takes the configuration
                yield Checked(path=entry.path, passed=False, because=str(error))
            else:
                yield _checked(entry, short)


def _checked(entry: Stored, short: Shortfall | None) -> Checked:
    if short is None:
        spec, as_recorded = runs_owed(entry.trace)[0]
        ends = entry.trace.expected if as_recorded else None
        return Checked(path=entry.path, passed=True, because=f"{ends or 'holds'} on {spec}")
    replay = short.replay
    where = short.spec if short.spec == entry.trace.system else f"the clean {short.spec}"
    wrong = f"on {where}: expected {replay.expected or 'holds'}, got {_got(short)}"
    return Checked(path=entry.path, passed=short.known is not None, because=wrong, known=short.known)


def _got(short: Shortfall) -> str:
    replay = short.replay
    if replay.verdict is Verdict.UNKNOWN:
        return "nothing that any oracle could judge"
    diverged = f"; {replay.divergence}" if replay.divergence is not None and replay.same_system else ""
    return f"{short.found or 'holds'}{diverged}"
