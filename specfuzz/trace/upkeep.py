"""Tidying stored traces: which are of the same bug, and which are written in an older form of today's format."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from specfuzz.errors import StoreError, TraceError
from specfuzz.trace.codec import dumps, load
from specfuzz.trace.store import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """Several traces of one bug. kept: the shortest; extra: the others. bug: identity and system, for messages."""

    bug: str
    kept: Path
    extra: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a file is written. state: "current", "older" (readable, and `data` is its current form) or "refused".

    because: why it is refused, in one sentence that names the file.
    """

    path: Path
    state: str
    because: str = ""
    data: bytes = b""


def duplicates(entries: Iterable[Stored]) -> tuple[Duplicates, ...]:
    """Groups of traces with one expected identity on one system; of those that hold, with one bug in their name."""
    groups: dict[tuple[str, str], list[Stored]] = {}
    for entry in entries:
        expected = entry.trace.expected
        # `ORACLE-PHASE-DIGEST` in the folder of the owner: all but the digest names the bug that it guards against.
        named = f"{entry.path.parent.name}/{entry.path.stem.rpartition('-')[0]}, which holds"
        bug = str(expected) if expected is not None else named
        groups.setdefault((bug, entry.trace.system), []).append(entry)
    found = []
    for (bug, system), group in groups.items():
        if len(group) > 1:
            best, *others = sorted(group, key=lambda entry: (len(entry.trace.steps), entry.path))
            extra = tuple(entry.path for entry in others)
            found.append(Duplicates(bug=f"{bug} on {system}", kept=best.path, extra=extra))
    return tuple(found)


def remove(paths: Iterable[Path]) -> None:
    """Remove files; raises StoreError for the first one that can't be."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"`{path}` can't be removed: {error.strerror}.") from None


def form_of(path: Path) -> Form:
    """Read one file and say how it is written."""
    try:
        trace = load(path)
        data = dumps(trace)
        with open(path, "rb") as file:
            written = file.read(os.fstat(file.fileno()).st_size)
    except TraceError as error:
        return Form(path=path, state="refused", because=str(error))
    except OSError as error:
        return Form(path=path, state="refused", because=f"`{path}` can't be read: {error.strerror}.")
    return Form(path=path, state="current" if data == written else "older", data=data)
