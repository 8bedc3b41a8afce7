"""Each bug planted into the real classes is seen by an oracle that it names, on a few events, without a fault."""

from __future__ import annotations

import inspect

import pytest

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Finish, Prefill, Prepare, Retract, Settle, Submit, Verify
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import ORACLES
from specfuzz.core.port import OpenOptions
from specfuzz.session import Session
from specfuzz.systems.sglang import MUTANTS, open_sglang

START: tuple[Event, ...] = (Submit("a", 4, 8), Prefill("a"), Prepare())
CAPPED: tuple[Event, ...] = (Submit("a", 4, 2), Prefill("a"), Prepare(), Verify(), Settle(), Settle())
MIXED = parse_events("submit(a,4,8) prefill(a) settle submit(b,4,8) mix(b)")
CONSTRAINED: tuple[Event, ...] = (Submit("a", 4, 8, 0, 3), Prefill("a"))
ROUND: tuple[Event, ...] = (Prepare(), Verify((("a", 4),)), Settle(), Settle())

#: The shortest scripts that we know; all are legal with overlap and hold on the clean engine.
SCRIPTS: dict[str, tuple[Event, ...]] = {
    "late-result-applied-to-finished": (
        Finish("a", 1), *START[1:], Verify(), Settle(), Prepare(), Verify((("a", 2),)), Settle(), Settle(),
    ),
    "late-result-applied-to-retracted": (*START, Verify((("a", 2),)), Settle(), Retract("a"), Settle()),
    "length-before-stop": (Finish("a", 1), Prefill("a"), Prepare(), Verify((("a", 4),)), Settle(), Settle()),
    "reserve-1x": START,
    "worker-advances-committed": (*START, Verify()),
    "retract-keeps-committed": (*START[:2], Retract("a")),
    "leaked-forward-mode": (*START, Verify()),
    "in-place-frontier": (*START, Verify()),
    "publish-old-frontier": (*START, Verify()),
    "stash-drops-hidden": (*START, Verify(), Settle(), Prepare(), Verify()),
    "filter-keeps-future-indices": (
        Submit("a", 4, 1), Submit("b", 4, 8), Prefill("a"), Prefill("b"), Settle(), Prepare(),
    ),
    "over-allocation-leaked": CAPPED,
    "double-free-at-finish": CAPPED,
    "mixed-tail-has-no-query": MIXED,
    "mixed-tails-not-stashed": MIXED,
    "mixed-tails-bound-too-early": parse_events("submit(a,4,8) prefill(a) submit(b,4,8) mix(b)"),
    "plain-mirror-rebuilt": parse_events("submit(a,4,8) prefill(a) submit(b,4,8) mix(b)"),
    "mixed-tail-not-committed": (*MIXED, Settle()),
    "plain-tail-committed": (*MIXED, Settle()),
    "mixed-tail-committed-twice": (*MIXED, Settle()),
    "mixed-prefill-committed": (*MIXED, Settle()),
    "draft-guesses-at-chunk-end": parse_events("submit(a,8,8) prefill(a,4) settle prefill(a,4) settle"),
    "penalties-counted-twice": START,
    "branch-pages-not-reserved": START,
    "seeds-of-the-best-branch-only": (*START, Verify(), Settle(), Prepare(), Verify()),
    "grammar-run-kept-whole": (*CONSTRAINED, *ROUND),
    "grammar-advanced-twice": (*CONSTRAINED, *ROUND[:2]),
    "grammar-barrier-dropped": (Submit("a", 4, 8, 0, 2), *CONSTRAINED[1:], *ROUND[:2]),
    "grammar-drafts-not-rolled-back": (*CONSTRAINED, *ROUND[:2]),
    "grammar-accepts-for-dead-rows": (*CONSTRAINED, Settle(), *ROUND[:2], Retract("a"), Settle()),
    "grammar-flag-lost-on-merge": (
        Submit("b", 4, 8), Prefill("b"), Settle(), Submit("a", 4, 8, 0, 2), *CONSTRAINED[1:], Settle(), *ROUND[:2],
    ),
    "chunked-abort-forgotten": parse_events("submit(a,8,8) prefill(a,4) abort(a) idle"),
}  # fmt: skip
FIRST = {"late-result-applied-to-finished": Submit("a", 4, 8), "length-before-stop": Submit("a", 4, 3)}


def script(name: str) -> tuple[Event, ...]:
    events = SCRIPTS[name]
    return (FIRST[name], *events) if name in FIRST else events


def run(spec: str, config: EngineConfig, events: tuple[Event, ...]) -> Session:
    system = open_sglang(spec, OpenOptions())
    session = Session(system, config, tuple(ORACLES))
    for event in events:
        session.step(event)
    system.close()
    return session


@pytest.mark.engine("sglang")
@pytest.mark.parametrize("name", MUTANTS.names())
def test_a_planted_bug_is_killed_by_an_oracle_that_it_names(name: str) -> None:
    bug = MUTANTS.get(name)
    switches = {
        "overlap": True, "mixed_chunk": Capability.MIXED_CHUNK in bug.needs,
        "chunked_prefill": Capability.CHUNKED_PREFILL in bug.needs, "grammar": Capability.GRAMMAR in bug.needs,
    }  # fmt: skip
    if Capability.TREE in bug.needs:
        switches |= {"topk": 4, "draft_token_num": 8, "page_size": 4 if Capability.PAGED in bug.needs else 1}
    config = EngineConfig(algorithm=bug.algorithm or "EAGLE", **{**switches, **bug.config})
    clean = run("", config, script(name))
    assert clean.violations == []
    assert clean.skipped == 0
    found = {violation.oracle for violation in run(name, config, script(name)).violations}
    assert found & set(bug.killed_by), found


def test_every_planted_bug_names_known_oracles_and_is_short() -> None:
    known = {oracle.name for oracle in ORACLES}
    assert len(MUTANTS) >= 6
    assert set(SCRIPTS) == set(MUTANTS.names())
    for bug in MUTANTS:
        assert set(bug.killed_by) <= known, bug.name
        body = inspect.getsource(bug.patch).split('"""')[-1].strip().splitlines()
        assert len([line for line in body if line.strip()]) <= 15, bug.name
        assert bug.summary and bug.source
        assert Capability.RACE_CHECK not in bug.needs
