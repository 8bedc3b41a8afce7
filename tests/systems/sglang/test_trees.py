"""Draft trees (topk > 1) on the real SGLang: the toy worker's own arithmetic, one scenario a test, and lockstep."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.draft_tree import right_branch, right_path, seeds
from specfuzz.core.language import STOP_TOKEN, Continuation, prompt_tokens
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import ORACLES
from specfuzz.core.port import OpenOptions, System
from specfuzz.session import Session
from specfuzz.systems.lockstep import LockstepSystem
from specfuzz.systems.reference import ReferenceSystem
from specfuzz.systems.sglang import open_sglang
from specfuzz.systems.sglang.content import ToyModel, Window
from specfuzz.systems.sglang.trees import Round, TreeModel, shape_of, walk
from tests.systems.sglang.conftest import Run
from tests.systems.sglang.test_engine import random_events

TREE = EngineConfig(topk=4, draft_token_num=8)
STEPS, START, WIDTH = TREE.spec_steps, 9, 64

ENGINE = pytest.mark.engine("sglang")
BOTH_LOOPS = pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "sync"])
PAGES = pytest.mark.parametrize("page_size", [1, 4])


# ------------------------------------------------------------------------------------------------- the toy's arithmetic
def prefilled(config: EngineConfig, stops: frozenset[int]) -> tuple[Continuation, ToyModel, Round]:
    """A model that has read nine tokens of `a` in scattered pages, and its next round."""
    text = Continuation(prompt_tokens("a", START))
    pages = np.random.default_rng(7).permutation(np.arange(1, WIDTH // config.page_size + 1))
    row = (pages[:, None] * config.page_size + np.arange(config.page_size)).reshape(-1).astype(np.int64)
    model = ToyModel(WIDTH + config.page_size, WIDTH, draft=True)
    tokens = np.array([text.token(position) for position in range(START)], dtype=np.int64)
    model.target_forward(
        [Window(start=0, tokens=tokens, loc=row[:START], cells=row[:START], stops=frozenset())]
    )  # fmt: skip
    model.draft_extend(row[:START], 0, np.array([text.token(position + 1) for position in range(START)]))
    branch, hidden = right_branch("a", START, config.topk), text.hidden(START)
    one = Round(
        start=START, branch=branch, shape=shape_of(config.topk, STEPS, config.draft_token_num, branch), row=row,
        window=row[START : START + config.draft_token_num], stops=stops, draft_stops=stops, bonus=text.token(START),
        seeds=np.array(seeds(hidden, branch, config.topk)), hidden=hidden, tokens=np.array([], dtype=np.int64),
    )  # fmt: skip
    return text, model, one


@PAGES
@pytest.mark.parametrize("wanted", range(1, STEPS + 2))
def test_a_right_draft_is_accepted_up_to_the_proposal_that_is_made_wrong(wanted: int, page_size: int) -> None:
    config = TREE.with_(page_size=page_size)
    text, model, one = prefilled(config, frozenset())
    trees = TreeModel(model, config)
    trees.duplicate_prefix_tails([one])
    trees.draft(one, wanted)
    [(reductions, following)] = trees.verify([one])
    path = walk(one, following)
    assert tuple(path) == right_path(config.topk, STEPS, config.draft_token_num, one.branch)[:wanted]
    assert [int(following[node]) for node in path] == [text.token(START + 1 + level) for level in range(wanted)]
    assert int(reductions[path[-1]]) == text.hidden(START + wanted - 1)
    trees.move(one.window[:wanted], one.window[path])
    for level, slot in enumerate(one.window[:wanted]):
        assert (int(model.target_v1[slot]), int(model.target_v2[slot])) == text.target_cell(START + level)


def test_a_branch_reads_its_own_copy_of_the_partial_page() -> None:
    config = TREE.with_(page_size=4)
    _, model, one = prefilled(config, frozenset())
    trees = TreeModel(model, config)
    trees.draft(one, STEPS + 1)  # nobody has copied the page
    [(_, following)] = trees.verify([one])
    assert one.branch != 0 and len(walk(one, following)) < STEPS + 1


@pytest.mark.parametrize("level", range(1, STEPS + 1))
def test_an_armed_stop_is_proposed_on_the_right_branch(level: int) -> None:
    _, model, one = prefilled(TREE, frozenset({START + level}))
    trees = TreeModel(model, TREE)
    trees.draft(one, STEPS + 1)
    [(_, following)] = trees.verify([one])
    path = walk(one, following)
    assert len(path) > level
    assert int(one.tokens[path[level]]) == STOP_TOKEN


# -------------------------------------------------------------------------------------------------------- on the engine
@ENGINE
@PAGES
@BOTH_LOOPS
def test_a_round_shows_its_seeds_its_path_and_its_move(judged: Run, overlap: bool, page_size: int) -> None:
    config = TREE.with_(overlap=overlap, page_size=page_size)
    text = "submit(a,5,12) submit(b,6,12) prefill(a) settle prefill(b) settle prepare verify(a=4,b=2)"
    session = judged(config, parse_events(text))
    assert Capability.TREE in session.capabilities
    launch = session.state.launches[-1]
    assert launch.entry is not None and launch.exit is not None
    assert [len(line) for line in launch.entry.topk_seeds] == [4, 4]
    assert launch.exit.accept_lens == (4, 2)
    for row, (rid, accepted) in enumerate(zip(launch.rids, launch.exit.accept_lens, strict=True)):
        whole = right_path(4, STEPS, 8, right_branch(rid, launch.entry.seq_lens[row], 4))
        assert launch.exit.accept_index[row] == (*whole[:accepted], *[-1] * (STEPS + 1 - accepted))
        window = launch.entry.window[row]
        assert launch.exit.moved[row][:accepted] == tuple(
            (window[lane], window[node]) for lane, node in enumerate(whole[:accepted])
        )
        assert launch.exit.bonus[row] == launch.exit.next_tokens[row][-1]


@ENGINE
@BOTH_LOOPS
def test_pages_are_reserved_for_every_branch(judged: Run, overlap: bool) -> None:
    config = TREE.with_(overlap=overlap, page_size=4)
    session = judged(config, parse_events("submit(a,5,12) prefill(a) settle prepare"))
    assert session.state.reqs["a"].kv_allocated_len == 5 + 2 * 4 * 8 + 3  # two rounds, 4 branches of 2 pages


@ENGINE
@BOTH_LOOPS
def test_known_fault_a_reserve_at_the_end_of_the_context_overwrites_the_next_row(sglang: System, overlap: bool) -> None:
    """SGLang 0.5.23 widens rows for the reserve with pages only (get_req_to_token_extra_context_len).

    With pages of one token a row has context + 4 + draft_token_num cells, and prepare reserves
    2 * max(topk * num_steps, draft_token_num) beyond the committed length: near the context's end it writes on into the
    next row, whose request then reads another one's KV. Whoever repairs it sees this test fail.
    """
    config = TREE.with_(overlap=overlap, context_len=18, radix=False)
    start = parse_events("submit(a,2,12) prefill(a) settle submit(b,8,8) prefill(b) settle")
    session = Session(sglang, config, tuple(ORACLES))
    for event in (*start, *parse_events("prepare")):
        found = session.step(event)
    assert {violation.oracle for violation in found} == {"ledger-in-order", "pages-are-conserved"}

    seen = {violation.oracle for violation in found}
    session = Session(sglang, config, tuple(oracle for oracle in ORACLES if oracle.name not in seen))
    for event in (*start, *parse_events("prepare verify")):
        found = session.step(event)
    wrong = [violation.values for violation in found if violation.oracle == "target-kv-is-true"]
    assert len(wrong) == 1 and wrong[0].startswith("target KV (layer 1)[row(a)[0]")


@pytest.fixture
def both() -> Iterator[LockstepSystem]:
    system = LockstepSystem(ReferenceSystem(check_races=False), open_sglang("", OpenOptions()))
    yield system
    system.close()


@ENGINE
@PAGES
@BOTH_LOOPS
@pytest.mark.parametrize("shape", [(4, 3, 8), (2, 2, 5), (3, 4, 12)], ids=str)
def test_generated_runs_agree_cell_by_cell(
    both: LockstepSystem, shape: tuple[int, int, int], overlap: bool, page_size: int
) -> None:
    topk, steps, nodes = shape
    config = EngineConfig(
        topk=topk, spec_steps=steps, draft_token_num=nodes, overlap=overlap, page_size=page_size,
        num_pages=480 // page_size,
    )  # fmt: skip
    for seed in range(2):
        session = Session(both, config, tuple(ORACLES))
        for event in random_events(session.ledger, seed, 60):
            assert session.step(event) == []
    names = ("launch.topk_seeds", "launch.accept_index", "launch.next_tokens", "req.kv_allocated_len")
    assert all(both.compared[name] for name in names)
    assert both.compared["relay.topk_seeds"] or not overlap
    assert not both.excluded
