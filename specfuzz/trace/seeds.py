"""Seed traces on disk: runs that hold, from which others start. They are made anew as a whole, never one by one.

Layout: `ROOT/seeds/KIND/CONFIGURATION-DIGEST.jsonl`, where DIGEST is short and taken from configuration and events.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from specfuzz.core.notation import format_events
from specfuzz.core.trace import Trace
from specfuzz.trace.codec import dumps
from specfuzz.trace.store import SUFFIX, Listing, files_below, read_all, write_atomically

#: Below the corpus root.
FOLDER = "seeds"


class SeedStore:
    """The seeds below one corpus root. Nothing is created before the first `replace`."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """root: the corpus folder, e.g. `corpus`."""
        self.root = Path(root)

    def paths(self, kind: str = "*") -> tuple[Path, ...]:
        """Files of one kind or of all, sorted. Raises StoreError."""
        return files_below(self.root / FOLDER, f"{kind}/*{SUFFIX}")

    def load(self, kind: str = "*") -> Listing:
        """Every seed of one kind or of all; a file that can't be read is reported, not fatal."""
        return read_all(self.paths(kind))

    def path_of(self, kind: str, trace: Trace) -> Path:
        """Where the seed lies or would lie."""
        shape = re.sub("[^a-z0-9]+", "-", trace.config.label().lower())
        text = f"{sorted(trace.config.as_dict().items())}\n{format_events(trace.events)}"
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        return self.root / FOLDER / kind / f"{shape}-{digest}{SUFFIX}"

    def replace(self, kind: str, traces: Sequence[Trace]) -> tuple[Path, ...]:
        """Write the seeds of one kind and remove what was there before; raises StoreError or TraceError.

        The new ones are written first, so that a failure leaves at least the old ones.
        """
        written = tuple(write_atomically(self.path_of(kind, trace), dumps(trace)) for trace in traces)
        for path in self.paths(kind):
            if path not in written:
                with contextlib.suppress(OSError):  # one seed too many does no harm
                    path.unlink()
        return written
