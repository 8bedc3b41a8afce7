"""The system under test, however a suite names it: `"mutated:reserve-1x"`, an object, or a callable that makes one."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.port import Comparing, System, open_system
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.errors import EngineFault, SpecfuzzError, UsageError

#: What `machine` and `run` take as `system`.
SystemLike = str | System | Callable[[], System]

_MEMBERS = ("name", "version", "capabilities", "reset", "apply", "snapshot", "close")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An open system. spec: as the command line names it, None for one that only the suite can make."""

    system: System
    spec: str | None


@dataclass(slots=True)
class OpenSystems:
    """Systems that stay open from test to test: starting a real engine takes half a minute. Named ones only."""

    _open: dict[str, System] = field(default_factory=dict)

    def get(self, spec: str) -> System:
        """The system of that name, opened at most once; raises UnknownName, UsageError or MissingPart."""
        if spec not in self._open:
            self._open[spec] = open_system(spec)
        return self._open[spec]

    def close(self) -> None:
        """Close them all; they open again when they are asked for."""
        while self._open:
            self._open.popitem()[1].close()


@contextmanager
def opened(system: SystemLike, pool: OpenSystems | None = None) -> Iterator[Opened]:
    """The system, open. What a callable made, and a named one without a pool, is closed again; an object is not ours.

    Raises UsageError for what is no system, UnknownName or MissingPart for a name.
    """
    if isinstance(system, str):
        if pool is not None:
            yield Opened(system=pool.get(system), spec=system)
            return
        made = open_system(system)
        try:
            yield Opened(system=made, spec=system)
        finally:
            made.close()
    elif callable(system) and (isinstance(system, type) or _missing(system)):
        own = system()
        try:
            yield Opened(system=_checked(own, f"`{_name_of(system)}` made"), spec=None)
        finally:
            if not _missing(own):
                own.close()
    else:
        yield Opened(system=_checked(system, "`system` is"), spec=None)


def name_of(system: SystemLike) -> str:
    """How messages call it, without opening it."""
    return system if isinstance(system, str) else str(getattr(system, "name", None) or _name_of(system))


def check_kind(system: object) -> None:
    """Raise UsageError unless it is a name, an object with the port's members, or callable."""
    if not isinstance(system, str) and not callable(system):
        _checked(system, "`system` is")


def _missing(candidate: object) -> list[str]:
    return [member for member in _MEMBERS if not hasattr(candidate, member)]


def _checked(candidate: Any, how: str) -> System:
    lacking = _missing(candidate)
    if lacking:
        raise UsageError(
            f"{how} a `{type(candidate).__name__}`, which is no system: it has no `{'`, no `'.join(lacking)}`. "
            "Give a name such as `reference`, or see `specfuzz.core.port.System`."
        )
    for member in ("name", "version"):
        if not isinstance(getattr(candidate, member), str):
            raise UsageError(f"{how} a `{type(candidate).__name__}`, whose `{member}` is no text.")
    own: System = candidate
    compares = isinstance(candidate, Comparing)  # it guards what it compares, and shows more than the port
    return own if compares else _Guarded(own)


def _name_of(thing: object) -> str:
    return getattr(thing, "__qualname__", None) or type(thing).__name__


class _Guarded:
    """A suite's own system, whose every exception is a finding with the trace so far, as the port asks for."""

    def __init__(self, inner: System) -> None:
        self._inner = inner
        self.name = inner.name
        self.version = inner.version

    def capabilities(self, config: EngineConfig) -> Capability:
        return self._inner.capabilities(config)

    def reset(self, config: EngineConfig) -> None:
        with _faults():
            self._inner.reset(config)

    def apply(self, event: Event) -> Receipt:
        with _faults():
            return self._inner.apply(event)

    def snapshot(self) -> Snapshot:
        with _faults():
            return self._inner.snapshot()

    def close(self) -> None:
        self._inner.close()


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except SpecfuzzError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise EngineFault(
            f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno} in {last.name})",
            where=f"{type(error).__name__} in {last.name}",
        ) from error
