"""Planted bugs are small, name what must kill them, can be reached by some configuration, and die on their traces."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import ORACLES
from specfuzz.core.trace import Trace
from specfuzz.mutants import MUTANTS, Mutant
from specfuzz.session import Session
from specfuzz.systems.reference import ReferenceSystem
from specfuzz.trace import CorpusStore, replay_trace

MOST_LINES = 15
CORPUS = Path(__file__).resolve().parents[2] / "corpus"
NAMES = MUTANTS.names()


def body_lines(tree: ast.FunctionDef | ast.ClassDef) -> int:
    """Lines from the first statement behind the docstring to the end."""
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    return (tree.end_lineno or 0) - body[0].lineno + 1


def parts(mutant: Mutant) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """The patch and whatever private function or class of its module it builds on."""
    module = sys.modules[mutant.patch.__module__]
    pending, seen = [mutant.patch.__name__], set()
    while pending:
        name = pending.pop()
        if name in seen or not hasattr(module, name) or getattr(module, name).__module__ != module.__name__:
            continue
        seen.add(name)
        tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(module, name)))).body[0]
        assert isinstance(tree, ast.FunctionDef | ast.ClassDef)
        yield tree
        pending += [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_is_small(name: str) -> None:
    assert sum(body_lines(tree) for tree in parts(MUTANTS.get(name))) <= MOST_LINES


@pytest.mark.parametrize("name", NAMES)
def test_what_must_kill_a_mutant_is_a_registered_oracle(name: str) -> None:
    killers = MUTANTS.get(name).killed_by
    assert killers and not [killer for killer in killers if killer not in ORACLES]


@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_names_its_source_and_says_what_it_does(name: str) -> None:
    mutant = MUTANTS.get(name)
    assert mutant.source and mutant.summary.endswith(".")


def configs(mutant: Mutant) -> Iterator[EngineConfig]:
    grammar = Capability.GRAMMAR in mutant.needs
    choices = product((4, 8), ("NONE", "EAGLE"), (True, False), (1, 4), (True, False))
    for nodes, algorithm, overlap, page_size, radix in choices:
        if mutant.algorithm in (None, algorithm):
            config = EngineConfig(
                algorithm=algorithm, overlap=overlap, page_size=page_size, radix=radix, draft_token_num=nodes,
                topk=1 if nodes == 4 else 4, mixed_chunk=Capability.MIXED_CHUNK in mutant.needs,
                chunked_prefill=Capability.CHUNKED_PREFILL in mutant.needs, grammar=grammar,
            )  # fmt: skip
            yield config.with_(**mutant.config)


@pytest.mark.parametrize("name", NAMES)
def test_some_configuration_has_what_a_mutant_needs(name: str) -> None:
    mutant, system = MUTANTS.get(name), ReferenceSystem()
    assert any(mutant.needs in system.capabilities(config) for config in configs(mutant))


@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_breaks_nothing_by_itself_where_it_has_nothing_to_spoil(name: str) -> None:
    """Whoever fuzzes `mutated:NAME` over every configuration gets findings, not faults of the planted code."""
    mutant, events = MUTANTS.get(name), parse_events("submit(a,4,6) prefill(a) settle prepare verify settle idle")
    for algorithm, overlap, topk in (("NONE", True, 1), ("NONE", False, 1), ("EAGLE", True, 1), ("EAGLE", False, 4)):
        config = EngineConfig(
            algorithm=algorithm, overlap=overlap, topk=topk, draft_token_num=4 if topk == 1 else 8, grammar=True,
            mixed_chunk=True, chunked_prefill=True,
        )  # fmt: skip
        system = ReferenceSystem(patch=mutant.patch)
        if mutant.needs not in system.capabilities(config):
            session = Session(system, config, ())
            for event in events:
                session.step(event)
            assert session.fault is None


@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_can_be_planted_and_launches_a_round(name: str) -> None:
    """An engine that can't even start is no planted bug: a crash never counts as a kill."""
    mutant = MUTANTS.get(name)
    config = next(config for config in configs(mutant) if mutant.needs in ReferenceSystem().capabilities(config))
    session = Session(ReferenceSystem(patch=mutant.patch), config, ())
    for event in parse_events("submit(a,5,9) prefill(a) settle prepare verify(a=2)"):
        session.step(event)
    assert session.fault is None and len(session.steps) == 5


# --------------------------------------------------------------------------------------------- the traces of the corpus


def stored() -> dict[str, Trace]:
    """Corpus traces of mutants of the reference, by path in the corpus."""
    listing = CorpusStore(CORPUS).load()
    assert not listing.problems
    return {
        str(entry.path.relative_to(CORPUS)): entry.trace
        for entry in listing.entries
        if entry.trace.system.startswith("mutated:")
    }


TRACES = stored()


@pytest.mark.parametrize("path", TRACES)
def test_a_stored_trace_kills_its_mutant(path: str) -> None:
    trace = TRACES[path]
    mutant = MUTANTS.get(trace.system.partition(":")[2])
    replay = replay_trace(trace, ReferenceSystem(name=trace.system, patch=mutant.patch), tuple(ORACLES))
    assert replay.came_about and replay.fault is None
    assert replay.got is not None and replay.got.oracle in mutant.killed_by


@pytest.mark.parametrize("path", TRACES)
def test_a_stored_trace_holds_on_the_clean_reference(path: str) -> None:
    session = Session(ReferenceSystem(), TRACES[path].config, tuple(ORACLES))
    for event in TRACES[path].events:
        session.step(event)
    assert not session.violations and session.fault is None


def test_every_mutant_has_a_trace() -> None:
    living = {mutant.name for mutant in MUTANTS if mutant.equivalent is None}
    assert living <= {trace.system.partition(":")[2] for trace in TRACES.values()}
