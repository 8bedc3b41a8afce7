"""The failures that one test has found, kept as shrunk traces so that its next run replays them first.

A trace lies in the test's own folder, laid out as every corpus: it stays when the bug is fixed.
It also goes to a Hypothesis example database, if there is one, and leaves that when it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypothesis.database import ExampleDatabase

from specfuzz.core.trace import Trace
from specfuzz.errors import StoreError, TraceError
from specfuzz.suite.places import folder_of
from specfuzz.trace.codec import dumps, loads
from specfuzz.trace.store import CorpusStore, save


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One stored failure. path: of its file, None if only the database has it."""

    trace: Trace
    path: Path | None


class FailureStore:
    """What one test keeps. Nothing is created before the first `keep`."""

    def __init__(self, corpus: Path, test: str, database: ExampleDatabase | None = None) -> None:
        """corpus: the folder that all tests share. test: its name, the same in every run and on every machine."""
        self._test = test
        self._corpus = CorpusStore(folder_of(corpus, test))
        self._database = database
        self._key = f"specfuzz/{test}".encode()

    def load(self) -> tuple[list[Kept], list[str]]:
        """What was found before, files first, and one sentence for each file that can't be read."""
        problems: list[str] = []
        try:
            listing = self._corpus.load()
        except StoreError as error:
            return self._from_database([]), [str(error)]
        problems += listing.problems
        found = [Kept(trace=stored.trace, path=stored.path) for stored in listing.entries]
        return found + self._from_database([kept.trace for kept in found]), problems

    def _from_database(self, known: list[Trace]) -> list[Kept]:
        if self._database is None:
            return []
        seen = {(trace.config, trace.events) for trace in known}
        found = []
        for data in sorted(self._database.fetch(self._key), key=lambda data: (len(data), data)):
            try:
                trace = loads(data, "the example database")
            except TraceError:
                self._database.delete(self._key, data)  # of another version; Hypothesis forgets those too
                continue
            if (trace.config, trace.events) not in seen:
                seen.add((trace.config, trace.events))
                found.append(Kept(trace=trace, path=None))
        return found

    def keep(self, trace: Trace) -> tuple[Path | None, str | None]:
        """Store a failure; (its file, None), or (None, why there is none). Where there are no events, there is none."""
        if not trace.steps or trace.expected is None:
            return None, None
        try:
            data = dumps(trace)
        except TraceError as error:
            return None, str(error)
        if self._database is not None:
            self._database.save(self._key, data)
        try:
            # Not `add`: it would keep a shorter trace of the same identity instead, and that one may hold by now.
            return save(trace, self._corpus.path_of(trace, trace.expected)), None
        except StoreError as error:
            return None, str(error)

    def forget(self, trace: Trace) -> None:
        """The trace holds now: the database drops it, as it drops every example that passes. Its file stays."""
        if self._database is not None:
            self._database.delete(self._key, dumps(trace))
