"""Corpus files as test items. A `.jsonl` file is ours only if its first line is the header of a specfuzz trace."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from specfuzz.core.trace import Trace
    from specfuzz.pytest_plugin.state import State

SUFFIX = ".jsonl"
#: What every trace begins with. Looked for in bytes: nothing is parsed before it is known to be ours.
_HEADER = re.compile(rb'\s*\{[^\n]*?"format"\s*:\s*"specfuzz-trace"')
#: The format stands first in the header; nobody's first line is read any further.
_LOOK = 4096


def is_trace(path: Path) -> bool:
    """Whether the file says that it is a specfuzz trace; whether it can be read as one is another question."""
    try:
        if path.suffix != SUFFIX or not path.is_file():
            return False
        with open(path, "rb") as file:
            return _HEADER.match(file.read(_LOOK)) is not None
    except OSError:
        return False


def shown_path(node: pytest.Item) -> str:
    """The node's file from where the user stands."""
    return os.path.relpath(node.path, node.config.invocation_params.dir)


class TraceFile(pytest.File):
    """One corpus file, which is one test."""

    state: State

    def collect(self) -> Iterator[TraceItem]:
        """Its test; raises a collection error of one sentence for a file that is broken."""
        from specfuzz.errors import TraceError
        from specfuzz.trace.codec import load

        try:
            trace = load(self.path)
        except TraceError as error:
            raise self.CollectError(str(error)) from None
        item = TraceItem.from_parent(self, name="replay")
        item.trace, item.state = trace, self.state
        yield item


class TraceItem(pytest.Item):
    """Replays the trace and expects what its header says, and that the clean system holds."""

    trace: Trace
    state: State

    def runtest(self) -> None:
        """Fails with the report of what came about instead."""
        self.state.check_trace(self.trace, shown_path(self))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it stands, and what it expects."""
        return self.path, None, f"{self.path.name} on {self.trace.system}"
