"""Reference and real SGLang side by side where prompts come in chunks and batches are mixed.

The scripts are those in which the two once differed; the runs are generated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Mix, Prefill
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import ORACLES
from specfuzz.core.port import OpenOptions
from specfuzz.session import Session
from specfuzz.systems.lockstep import LockstepSystem
from specfuzz.systems.reference import ReferenceSystem
from specfuzz.systems.sglang import open_sglang
from tests.systems.sglang.test_engine import random_events

pytestmark = pytest.mark.engine("sglang")

CONFIG = EngineConfig(mixed_chunk=True, chunked_prefill=True)


@pytest.fixture
def both() -> Iterator[LockstepSystem]:
    system = LockstepSystem(ReferenceSystem(check_races=False), open_sglang("", OpenOptions()))
    yield system
    system.close()


@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "sync"])
@pytest.mark.parametrize("algorithm", ["NONE", "EAGLE"])
@pytest.mark.parametrize(
    ("text", "fields"),
    [
        pytest.param(
            "submit(a,2,2) submit(b,2,1) prefill(a) settle mix(b) settle", {}, id="the tree takes what was launched"
        ),
        pytest.param("submit(a,4,2) prefill(a,2) settle abort(a) idle", {}, id="an abort marks a carried chunk"),
        pytest.param(
            "submit(b,4,8) prefill(b) settle submit(a,4,2) prefill(a,2) settle prepare verify settle abort(a) prepare",
            {}, id="an abort of one that nothing carries is only noted",
        ),
        pytest.param(
            "submit(a,4,8) prefill(a) settle submit(b,7,1) prefill(b)", {"num_pages": 13},
            id="admission sets a token aside for every row that may ride along",
        ),
        pytest.param(
            "submit(a,4,8) prefill(a) settle submit(c,4,8) prefill(c) settle submit(b,7,1) prefill(b,4) settle "
            "prefill(b,2) settle prepare verify settle prefill(b)",
            {"page_size": 4, "num_pages": 6, "radix": False},
            id="a chunk goes on in its last page though the pool is empty",
        ),
        pytest.param("submit(a,3,9) prefill(a) settle prepare", {"num_pages": 10}, id="the last row is aborted"),
        pytest.param("submit(a,4,2) prefill(a) settle retract(a) abort(a)", {}, id="an answered request waits no more"),
    ],
)  # fmt: skip
def test_what_once_differed(
    both: LockstepSystem, text: str, fields: dict[str, int], algorithm: str, overlap: bool
) -> None:
    session = Session(both, CONFIG.with_(algorithm=algorithm, overlap=overlap, **fields), tuple(ORACLES))
    for event in parse_events(text):
        assert session.step(event) == []
    assert session.skipped == 0
    assert not both.excluded


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "sync"])
@pytest.mark.parametrize("algorithm", ["NONE", "EAGLE"])
def test_generated_runs_agree_cell_by_cell(both: LockstepSystem, algorithm: str, overlap: bool, page_size: int) -> None:
    config = CONFIG.with_(algorithm=algorithm, overlap=overlap, page_size=page_size, num_pages=320 // page_size)
    rng, modes = random.Random(1), set()
    for seed in range(3):
        session = Session(both, config, tuple(ORACLES))
        for event in random_events(session.ledger, seed, 60):
            if isinstance(event, Prefill):
                chunk = rng.choice((0, page_size, 4, 7))
                mixed = Mix(event.rid, chunk)
                event = mixed if session.ledger.admits(mixed) else Prefill(event.rid, chunk)
            assert session.step(event) == []
        modes |= {step.receipt.mode for step in session.steps}
    assert {"EXTEND", "MIXED", "DECODE"} <= modes
    assert both.compared["launch.seq_lens"] and both.compared["launch.next_tokens"]
    assert not both.excluded
