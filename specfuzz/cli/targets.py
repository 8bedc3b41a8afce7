"""What `replay`, `shrink` and `explain` work on: a trace file, or a line of events in the notation."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from specfuzz.cli.engines import changes_of, config_of
from specfuzz.cli.flags import Flags
from specfuzz.core.notation import parse_events
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.errors import NotationError, TraceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """trace: what to run. system: on which one. path: its file, None for notation."""

    trace: Trace
    system: str
    path: str | None

    @property
    def elsewhere(self) -> bool:
        """Whether the user asked for another system than the one that the trace was recorded on."""
        return self.system != self.trace.system

    @property
    def name(self) -> str:
        """How messages call it."""
        return self.path if self.path is not None else "the notation"


def read_target(text: str, flags: Flags) -> Target:
    """The target that the user named. `--config` and its friends change a file's configuration.

    Raises TraceError, NotationError or ConfigError, each in one sentence.
    """
    if _is_file(text):
        from specfuzz.trace.codec import load

        trace = load(text)
        if changes_of(flags):
            trace = replace(trace, config=config_of(flags, trace.config))
        return Target(trace=trace, system=flags.system or trace.system, path=text)
    system = flags.system or "reference"
    try:
        events = parse_events(text)
    except NotationError as error:
        if not text.strip() or any(mark in text for mark in "() \t"):
            raise
        raise TraceError(f"there is no file `{text}`, and it is no line of events either: {error}") from None
    if not events:
        raise NotationError("there are no events in an empty line; see `specfuzz replay --help`.")
    steps = tuple(TraceStep(event=event) for event in events)
    return Target(trace=Trace(config=config_of(flags), steps=steps, system=system), system=system, path=None)


def _is_file(text: str) -> bool:
    try:
        return os.path.lexists(text) or text.endswith(".jsonl")
    except (OSError, ValueError):
        return False
