"""Replays a corpus: each trace ends as its header says, also along the recorded way, and holds on the clean engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from specfuzz.campaign.showing import clean_twin
from specfuzz.core.oracle import Oracle
from specfuzz.core.port import System
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Verdict
from specfuzz.errors import MissingPart, UsageError
from specfuzz.trace.replay import Replay, replay_trace
from specfuzz.trace.store import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One stored trace. passed: None where its system isn't on this machine. because: what was seen, in a sentence."""

    path: Path
    passed: bool | None
    because: str


def check_corpus(
    entries: Iterable[Stored], open_system: Callable[[str], System], oracles: Sequence[Oracle]
) -> Iterator[Checked]:
    """Check each trace on its own system and, where that has a planted bug, on the clean one as well.

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
                wrong = _wrong(entry.trace, system_of, oracles)
            except MissingPart as error:
                yield Checked(path=entry.path, passed=None, because=str(error))
                continue
            except UsageError as error:  # the mutant has gone, or the engine no longer takes the configuration
                wrong = str(error)
            ends = entry.trace.expected or "holds"
            yield Checked(path=entry.path, passed=wrong is None, because=wrong or f"{ends} on {entry.trace.system}")


def _wrong(trace: Trace, system_of: Callable[[str], System], oracles: Sequence[Oracle]) -> str | None:
    replay = replay_trace(trace, system_of(trace.system), oracles, same_system=True)
    if not replay.came_about or replay.verdict is Verdict.UNKNOWN:
        return f"on {trace.system}: expected {trace.expected or 'holds'}, got {_got(replay)}"
    twin = clean_twin(trace.system)
    if twin is None:
        return None
    clean = replay_trace(trace, system_of(twin), oracles, same_system=False)
    return None if clean.verdict is Verdict.HOLDS else f"on the clean {twin}: expected holds, got {_got(clean)}"


def _got(replay: Replay) -> str:
    if replay.verdict is Verdict.UNKNOWN:
        return "nothing that any oracle could judge"
    diverged = f"; {replay.divergence}" if replay.divergence is not None and replay.same_system else ""
    return f"{replay.got or 'holds'}{diverged}"
