"""Trees behind the port: what an observer sees of them, and that every interleaving keeps every rule on both faces."""

from __future__ import annotations

import pytest

from specfuzz.campaign.running import run_examples, shorter
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.draft_tree import right_branch, right_path, seeds
from specfuzz.core.judge import Tally
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import ORACLES, REACHABLE
from specfuzz.errors import ConfigError
from specfuzz.mutants import MUTANTS
from specfuzz.reference.algorithms import ALGORITHMS
from specfuzz.session import Session
from specfuzz.state_machine import PROFILES
from specfuzz.systems.reference import ReferenceSystem

TREE = EngineConfig(topk=4, draft_token_num=8, num_pages=256)
START = "submit(a,5,20) prefill(a) settle"


def run(text: str, config: EngineConfig = TREE, system: ReferenceSystem | None = None) -> Session:
    """A session after these events, every one of which is legal."""
    session = Session(system or ReferenceSystem(), config, (), keep_digest=True)
    for event in parse_events(text):
        session.step(event)
    assert session.skipped == 0, "an event of this test is not legal"
    return session


# -------------------------------------------------------------------------------------------------------- capabilities


def test_a_tree_is_an_ability_of_the_configuration() -> None:
    system = ReferenceSystem()
    assert Capability.TREE in system.capabilities(TREE)
    assert Capability.TREE not in system.capabilities(EngineConfig())
    assert Capability.TREE not in system.capabilities(TREE.with_(algorithm="NONE"))  # which has no draft at all


def test_a_worker_that_drafts_chains_only_refuses_a_tree_with_both_names(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = ALGORITHMS.get("EAGLE")
    bare = type(chains)(
        **{name: getattr(chains, name) for name in chains.__slots__ if name != "capabilities"},
        capabilities=chains.capabilities & ~Capability.TREE,
    )
    monkeypatch.setattr(type(ALGORITHMS), "get", lambda registry, name: bare)
    with pytest.raises(ConfigError, match=r"`topk`=4 does not fit `algorithm`=EAGLE"):
        ReferenceSystem().capabilities(TREE)


# -------------------------------------------------------------------------------------------------------- what is seen


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("accept", [1, 2, 3, 4])
def test_entry_and_exit_show_seeds_path_move_and_bonus(overlap: bool, accept: int) -> None:
    session = run(f"{START} prepare verify(a={accept}) settle", TREE.with_(overlap=overlap))
    view, text = session.state.launches[-1], session.ledger.requests["a"].text
    assert view.entry is not None and view.exit is not None
    branch = right_branch("a", 5, 4)
    assert view.entry.topk_seeds == (seeds(text.hidden(5), branch, 4),)
    assert view.entry.topk_index == (view.entry.topk_seeds[0][0],)
    path = right_path(4, 3, 8, branch)[:accept]
    pad = 4 - accept
    window = view.entry.window[0]
    assert view.exit.accept_index == (path + (-1,) * pad,) and len(window) == 8
    assert view.exit.moved == (tuple((window[d], window[n]) for d, n in enumerate(path)) + ((0, 0),) * pad,)
    assert view.exit.bonus == (text.token(5 + accept),)


def test_a_chain_shows_no_tree() -> None:
    view = run(f"{START} prepare verify(a=3) settle", EngineConfig()).state.launches[-1]
    assert view.entry is not None and view.exit is not None
    assert (view.entry.topk_seeds, view.exit.accept_index, view.exit.moved, view.exit.bonus) == ((), (), (), ())


def test_the_relay_shows_the_seeds_of_the_next_round() -> None:
    session = run(f"{START} prepare verify(a=2) idle")
    relay, text = session.state.relay, session.ledger.requests["a"].text
    assert relay is not None
    assert relay.rows["a"].topk_seeds == seeds(text.hidden(7), right_branch("a", 7, 4), 4)
    assert relay.rows["a"].topk_index == relay.rows["a"].topk_seeds[0]


# ---------------------------------------------------------------------------------------------------- all interleavings

SHAPES = [
    pytest.param({}, id="page-1"),
    pytest.param({"page_size": 4}, id="page-4"),
    pytest.param({"page_size": 16, "topk": 2, "spec_steps": 2, "draft_token_num": 7, "num_pages": 24}, id="page-16"),
    pytest.param({"page_size": 4, "mixed_chunk": True, "chunked_prefill": True}, id="mixed"),
]


@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "sync"])
@pytest.mark.parametrize("fields", SHAPES)
@pytest.mark.parametrize("face", ["numpy", "torch"])
def test_every_rule_holds_whatever_the_interleaving(
    fields: dict[str, int], overlap: bool, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if face == "torch":
        monkeypatch.setenv("SPECFUZZ_ARRAYS", "torch")
    config, tally = TREE.with_(overlap=overlap, **fields), Tally()
    found = run_examples(
        ReferenceSystem(), config, tuple(ORACLES), goals=tuple(REACHABLE), tally=tally, seed=7,
        profile=shorter(PROFILES["dev"], 6),
    )  # fmt: skip
    assert found is None
    assert tally.reached["scattered-path-is-accepted"] > 0
    for name in ("accepted-path-leads-the-window", "right-draft-is-accepted", "output-is-plain-decoding"):
        assert tally.of(name).applied > 0, name


def test_both_faces_give_the_same_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    events = f"{START} submit(b,9,9) prefill(b) settle prepare verify(a=3,b=2) prepare verify(a=4) settle settle idle"
    config = TREE.with_(page_size=4, num_pages=128)
    numpy = run(events, config).digest()
    monkeypatch.setenv("SPECFUZZ_ARRAYS", "torch")
    assert run(events, config).digest() == numpy


# -------------------------------------------------------------------------------------------- a row that is handed on

#: `a` ends with the first of two rounds; its row goes to `b`, which writes it after the second round has read it and
#: before that round moves its accepted path.
HANDED_ON = (
    "submit(a,4,5) submit(b,20,5) prefill(a) settle prepare verify(a=4) prepare verify(a=3) advance(schedule) "
    "advance(forward,9) settle prefill(b) advance(schedule,64) idle"
)


def test_a_move_that_reads_the_row_again_is_seen_by_value_without_a_race_checker() -> None:
    rule, config = ORACLES.get("move-stays-in-the-window"), TREE.with_(max_reqs=1, num_pages=128)
    for patch, broken in ((None, []), (MUTANTS.get("tree-move-reads-the-row").patch, [rule.name])):
        session = Session(ReferenceSystem(patch=patch, check_races=False), config, (rule,))
        for event in parse_events(HANDED_ON):
            session.step(event)
        assert session.skipped == 0 and [found.oracle for found in session.violations] == broken
