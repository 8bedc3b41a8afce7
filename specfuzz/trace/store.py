"""The corpus on disk: one shrunk trace per bug, in a folder per owner, written atomically.

Layout: `ROOT/regressions/OWNER/ORACLE-PHASE-DIGEST.jsonl`, where DIGEST is short and taken from identity, system,
configuration and events. Two traces of one identity on one system are the same bug: the shorter one stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from specfuzz.core.clock import Owner
from specfuzz.core.notation import format_events
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity
from specfuzz.errors import StoreError, TraceError
from specfuzz.trace.codec import dumps, load

#: Below the corpus root: traces of bugs that must never come back.
FOLDER = "regressions"
SUFFIX = ".jsonl"
_NAME = re.compile(r"[a-z0-9][a-z0-9_\-]{0,79}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One trace of the corpus and its file."""

    path: Path
    trace: Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What `add` did. path: of the trace that the corpus has now for this bug.

    written: whether that is the added one; replaced: files of longer traces of the same bug, now gone.
    """

    path: Path
    written: bool
    replaced: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Every trace that can be read, in order of path, and one sentence for every file that can't."""

    entries: tuple[Stored, ...]
    problems: tuple[str, ...]


class CorpusStore:
    """The corpus below one root folder. Nothing is created before the first `add`."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """root: the corpus folder, e.g. `corpus`."""
        self.root = Path(root)

    def add(self, trace: Trace, about: Identity | None = None) -> Added:
        """Keep the trace unless the corpus has one of the same bug that is as short.

        about: the bug that a trace with expected verdict `holds` guards against. Raises StoreError if the folder can't
        be written or the trace names no bug; what the corpus had before is then still there.
        """
        bug = trace.expected or about
        if bug is None:
            raise StoreError(
                "the trace expects no violation, so it has no place in the corpus: say which bug it guards against."
            )
        if not all(_NAME.fullmatch(part) for part in bug):
            raise StoreError(f"`{bug}` can't be a file name: an identity is made of lower-case words with hyphens.")
        path = self.path_of(trace, bug)
        same = [entry for entry in self.load(bug).entries if _is_same_bug(entry, trace, bug)]
        best = min(same, key=lambda entry: len(entry.trace.steps), default=None)
        if best is not None and len(best.trace.steps) <= len(trace.steps):
            return Added(path=best.path, written=False)
        write_atomically(path, dumps(trace))
        replaced = tuple(entry.path for entry in same if entry.path != path)
        for old in replaced:
            with contextlib.suppress(OSError):  # two traces of one bug are untidy, and nothing worse
                old.unlink()
        return Added(path=path, written=True, replaced=replaced)

    def check_writable(self) -> None:
        """Raise StoreError unless traces can be added now; leaves no trace of having tried."""
        for owner in (*Owner, "engine"):  # the folder of a single one may be in the way
            check_writable(self.root / FOLDER / owner / f"any{SUFFIX}")

    def path_of(self, trace: Trace, bug: Identity) -> Path:
        """Where the trace of this bug lies or would lie."""
        return self.root / FOLDER / bug.owner / f"{bug.oracle}-{bug.phase}-{short_digest(trace, bug)}{SUFFIX}"

    def paths(self, bug: Identity | None = None) -> tuple[Path, ...]:
        """Files of the corpus, sorted; with a bug only those that may be of it. Raises StoreError."""
        pattern = f"*/*{SUFFIX}" if bug is None else f"{bug.owner}/{bug.oracle}-{bug.phase}-*{SUFFIX}"
        return files_below(self.root / FOLDER, pattern)

    def load(self, bug: Identity | None = None) -> Listing:
        """Every trace (of one bug, if given); a file that can't be read is reported, not fatal."""
        return read_all(self.paths(bug))


def files_below(start: Path, pattern: str) -> tuple[Path, ...]:
    """Files below a folder of the corpus, sorted; none if it doesn't exist. Raises StoreError if it can't be listed."""
    try:
        if not start.exists():
            return ()
        os.listdir(start)  # glob is silent about a folder that it may not read
        return tuple(sorted(start.glob(pattern)))
    except OSError as error:
        raise StoreError(f"the corpus folder `{start}` can't be listed: {error.strerror}.") from None


def read_all(paths: Iterable[Path]) -> Listing:
    """The traces in these files; one that can't be read is reported, not fatal."""
    entries, problems = [], []
    for path in paths:
        try:
            entries.append(Stored(path=path, trace=load(path)))
        except TraceError as error:
            problems.append(str(error))
    return Listing(entries=tuple(entries), problems=tuple(problems))


def _is_same_bug(entry: Stored, trace: Trace, bug: Identity) -> bool:
    if entry.trace.system != trace.system or entry.path.stem != f"{bug.oracle}-{bug.phase}-{entry.path.stem[-8:]}":
        return False
    return entry.trace.expected == trace.expected


def short_digest(trace: Trace, bug: Identity) -> str:
    """Eight hex digits that keep file names apart: from everything but the receipts."""
    # The bug itself is in, because names with hyphens run into each other.
    config = sorted(trace.config.as_dict().items())
    text = f"{tuple(bug)}\n{trace.expected}\n{trace.system}\n{config}\n{format_events(trace.events)}"
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def write_atomically(path: Path, data: bytes) -> Path:
    """Write a file whole or not at all: a temporary file beside it, flushed to disk, then renamed over it.

    Raises StoreError; a file that was there before is then unchanged.
    """
    with _temporary(path) as (temporary, target):
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _flush_folder(target.parent)
    return path


def check_writable(path: Path) -> None:
    """Raise StoreError unless `write_atomically` could write this file now; leaves no trace of having tried."""
    try:
        missing = [folder for folder in path.resolve().parents if not folder.exists()]
    except (OSError, ValueError, RuntimeError):
        missing = []  # what is wrong with it is said below
    with _temporary(path) as (temporary, _target):
        temporary.touch(exist_ok=False)
        temporary.unlink()
    for folder in missing:  # the innermost comes first
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[tuple[Path, Path]]:
    """(a free name beside what is to be written, what is to be written); gone again after a failure: a StoreError."""
    temporary: Path | None = None
    try:
        target = path.resolve()  # what a link leads to is replaced, not the link
        if target.exists() and not target.is_file():
            raise StoreError(
                f"`{path}` can't be written: it is not a regular file. What was there before is unchanged."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f".tmp-{secrets.token_hex(8)}"
        yield temporary, target
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links
        why = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"`{path}` can't be written: {why}. What was there before is unchanged.") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _flush_folder(folder: Path) -> None:
    """Make the rename itself durable where folders can be opened (not on Windows)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write the trace to a file of any name, atomically; raises TraceError or StoreError."""
    return write_atomically(Path(path), dumps(trace))
