"""Constrained decoding and penalties on the real SGLang: side by side with the reference, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specfuzz.conformance.walks import Walk
from specfuzz.core.config import EngineConfig
from specfuzz.core.language import STOP_TOKEN
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import ORACLES
from specfuzz.core.port import OpenOptions, System
from specfuzz.core.receipt import Receipt
from specfuzz.session import Session
from specfuzz.systems.lockstep import LockstepSystem
from specfuzz.systems.reference import ReferenceSystem
from specfuzz.systems.sglang import open_sglang
from tests.systems.sglang.conftest import Run

pytestmark = pytest.mark.engine("sglang")

GRAMMAR = EngineConfig(grammar=True)
TREE = {"topk": 4, "draft_token_num": 8}


@pytest.fixture
def both() -> Iterator[LockstepSystem]:
    system = LockstepSystem(ReferenceSystem(check_races=False), open_sglang("", OpenOptions()))
    yield system
    system.close()


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "sync"])
@pytest.mark.parametrize(
    "shape", [{"algorithm": "NONE"}, {}, TREE], ids=["plain", "chain", "tree"]
)  # fmt: skip
def test_generated_runs_agree_cell_by_cell(
    both: LockstepSystem, shape: dict[str, int | str], overlap: bool, page_size: int
) -> None:
    config = GRAMMAR.with_(overlap=overlap, page_size=page_size, **shape)
    ended = 0
    for seed in range(6):
        session, receipt = Session(both, config, tuple(ORACLES)), Receipt()
        walk = Walk(seed, config, 50)
        while (event := walk(session.ledger, receipt)) is not None:
            assert session.step(event) == []
            receipt = session.steps[-1].receipt
        ended += sum(req.grammar_terminated for req in session.state.reqs.values())
    assert ended and both.compared["req.grammar_accepted"] and both.compared["batch.penalized"]
    assert not both.excluded


@pytest.mark.parametrize("shape", [{}, TREE], ids=["chain", "tree"])
def test_a_run_past_the_end_is_cut_and_its_request_stops_there(judged: Run, shape: dict[str, int]) -> None:
    events = parse_events("submit(a,4,9,grammar=3) prefill(a) settle prepare verify(a=4) settle")
    req = judged(GRAMMAR.with_(**shape), events).state.reqs["a"]
    assert (req.finished_reason, req.output_ids[-1], len(req.output_ids)) == ("stop", STOP_TOKEN, 3)
    assert req.grammar_terminated and req.grammar_accepted == req.output_ids and req.kv_committed_len == 6


def test_a_plain_forward_is_sampled_behind_the_result_ahead_of_it(judged: Run) -> None:
    config = GRAMMAR.with_(algorithm="NONE")
    early = judged(config, parse_events("submit(a,4,9,grammar=8) prefill(a) prepare verify"))
    assert [view.exit is None for view in early.state.launches] == [False, True]
    late = judged(config, parse_events("submit(a,4,9,grammar=8) prefill(a) prepare verify settle"))
    assert [view.exit is None for view in late.state.launches] == [False, False]


#: What SGLang 0.5.23 does wrong (docs/sglang-0.5.23.md). Whoever repairs it sees this fail, and can let campaigns on
#: SGLang bring mixed steps and chunks together with grammars.
KNOWN = {
    "decided-tokens-are-allowed": (
        GRAMMAR.with_(mixed_chunk=True, radix=False), "submit(a,2,2,grammar=2) prefill(a) submit(b,2,1) mix(b)",
    ),
    "cached-draft-kv-is-true": (
        GRAMMAR.with_(overlap=False, page_size=4, spec_steps=1, draft_token_num=2, chunked_prefill=True),
        "submit(a,4,2,grammar=2) prefill(a) settle retract(a) prefill(a,4) settle prefill(a) settle",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_known_faults_come_about_on_sglang_and_not_on_the_reference(sglang: System, name: str) -> None:
    config, events = KNOWN[name]
    found = {}
    for system in (sglang, ReferenceSystem()):
        session = Session(system, config, tuple(ORACLES))
        for event in parse_events(events):
            session.step(event)
        found[system.name] = {violation.oracle for violation in session.violations}
    assert name in found["sglang"] and not found["reference"]
