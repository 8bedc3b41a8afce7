"""The pytest plugin: machines and corpus files as tests, failures that are replayed first, a summary at the end.

It is loaded in every session of an environment that has specfuzz, so it imports next to nothing until it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from specfuzz.pytest_plugin.options import add_options, any_given, corpus_folder
from specfuzz.pytest_plugin.state import State
from specfuzz.pytest_plugin.summary import summary_lines
from specfuzz.pytest_plugin.traces import TraceFile, is_trace, shown_path
from specfuzz.suite.places import FOLDER
from specfuzz.suite.totals import CURRENT

if TYPE_CHECKING:
    from specfuzz.suite.machine import Plan

__all__ = ["specfuzz_check"]

_STATE = pytest.StashKey[State]()
#: Under this name processes of pytest-xdist tell each other what they need to know.
_WIRE = "specfuzz"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--specfuzz-…`."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Open the books; check what the user asked for before anything is collected."""
    config.addinivalue_line("markers", "specfuzz: a machine, or a trace of a corpus; added by the plugin")
    state = State(config, getattr(config, "workerinput", {}).get(_WIRE))
    config.stash[_STATE] = state
    if any_given(config):
        _ = state.settings
    CURRENT.set(state.totals)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close what is open."""
    state = config.stash.get(_STATE, None)
    if state is not None:
        state.close()
        CURRENT.set(state.outer)


# ----------------------------------------------------------------------------------------------------------- collection
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> TraceFile | None:
    """A specfuzz trace is a test; failures that a machine keeps for itself are not, unless they are asked for."""
    if not is_trace(file_path):
        return None
    kept = corpus_folder(parent.config) / FOLDER
    if file_path.is_relative_to(kept) and not parent.session.isinitpath(file_path):
        return None
    made: TraceFile = TraceFile.from_parent(parent, path=file_path)
    made.state = parent.config.stash[_STATE]
    return made


def pytest_itemcollected(item: pytest.Item) -> None:
    """`-m specfuzz` selects what is ours."""
    if isinstance(item.parent, TraceFile) or "specfuzz_check" in getattr(item, "fixturenames", ()):
        item.add_marker("specfuzz")


@pytest.fixture
def specfuzz_check(request: pytest.FixtureRequest) -> Callable[[Plan], None]:
    """Runs what `specfuzz.machine` planned, under the options of this session."""
    state: State = request.config.stash[_STATE]
    owner: pytest.Item | pytest.Collector | None = request.node.getparent(pytest.Class)
    test = request.node.nodeid if owner is None else owner.nodeid

    def check(plan: Plan) -> None:
        __tracebackhide__ = True
        names = request.node.nodeid.partition("::")[2]
        state.check(plan, test, f"{shown_path(request.node)}::{names}")

    return check


# -------------------------------------------------------------------------------------------------------------- the end
@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist sends its counts home."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_WIRE] = session.config.stash[_STATE].totals.plain()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Every worker of pytest-xdist works with the same seed."""
    node.workerinput[_WIRE] = node.config.stash[_STATE].seed


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a worker counted; one that crashed has sent nothing."""
    sent = getattr(node, "workeroutput", {}).get(_WIRE)
    if sent is not None:
        node.config.stash[_STATE].totals.add(sent)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What ran, what was judged, what never was, what broke; silent where nothing of ours ran."""
    state = config.stash[_STATE]
    if state.totals.is_empty:
        return
    terminalreporter.section("specfuzz")
    for line in summary_lines(state.totals, state.seed, every=terminalreporter.verbosity > 0):
        terminalreporter.line(line)
