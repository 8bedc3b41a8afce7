"""The FSM of a constrained request, its masks over a verify tree, and when an engine lets it move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfuzz.core.config import EngineConfig
from specfuzz.core.language import STOP_TOKEN
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import ORACLES
from specfuzz.gpu import open_device
from specfuzz.reference.grammar import Grammar, vocab_masks
from specfuzz.reference.req import Req
from specfuzz.reference.scheduler import Scheduler
from specfuzz.session import Session
from specfuzz.systems.reference import ReferenceSystem

TOKENS = st.sampled_from([1, 2, 3, STOP_TOKEN])


def behind(length: int, *tokens: int) -> Grammar:
    grammar = Grammar(length)
    for token in tokens:
        grammar.accept_token(token)
    return grammar


def state(grammar: Grammar) -> tuple[list[int], bool]:
    return grammar.accepted[:], grammar.is_terminated()


# ------------------------------------------------------------------------------------------------------------ the FSM
def test_only_the_stop_may_come_last() -> None:
    grammar = behind(3, 1, 2)
    assert grammar.allows_only_stop() and not grammar.allows(7) and grammar.allows(STOP_TOKEN)
    with pytest.raises(ValueError, match="not allowed"):
        grammar.accept_token(7)
    grammar.accept_token(STOP_TOKEN)
    assert grammar.is_terminated() and not grammar.allows(STOP_TOKEN)


def test_the_stop_ends_it_before() -> None:
    grammar = behind(9, 1, STOP_TOKEN)
    assert grammar.is_terminated() and not grammar.allows_only_stop()


@given(st.integers(2, 6), st.lists(TOKENS, max_size=5), st.lists(TOKENS, max_size=5))
def test_a_rollback_undoes_what_was_accepted_the_end_included(length: int, start: list[int], tried: list[int]) -> None:
    grammar = Grammar(length)
    for token in [token for token in start if token != STOP_TOKEN][: length - 1]:
        grammar.accept_token(token)
    before, count = state(grammar), 0
    for token in tried:
        if grammar.allows(token):
            grammar.accept_token(token)
            count += 1
    grammar.rollback(count)
    assert state(grammar) == before


# -------------------------------------------------------------------------------------------------------------- masks
CHAIN = [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("length", "drafts", "masks"),
    [
        (9, [1, 2, 3, 4], [0, 0, 0, 0]),
        (2, [1, STOP_TOKEN, 3, 4], [1, 0, 0, 0]),  # behind the end nothing is constrained
        (4, [1, 2, 3, 4], [0, 0, 1, 0]),  # the last draft is not allowed, so nothing behind it is looked at
        (4, [1, 2, 3, STOP_TOKEN], [0, 0, 1, 0]),
        (4, [1, STOP_TOKEN, 3, 4], [0, 0, 0, 0]),
    ],
)
def test_the_mask_of_a_chain_moves_on_with_every_draft(length: int, drafts: list[int], masks: list[int]) -> None:
    assert vocab_masks(behind(length, 1), drafts, CHAIN) == masks


def test_branches_of_a_tree_are_walked_from_their_own_parent() -> None:
    #      root -> 1 -> 3 -> 5      and root -> 2 (the end) -> 4
    parents, drafts = [0, 0, 0, 1, 2, 3], [1, 2, STOP_TOKEN, 3, 4, 5]
    assert vocab_masks(behind(4, 1), drafts, parents) == [0, 0, 0, 1, 0, 0]


@given(st.integers(2, 7), st.lists(TOKENS, min_size=1, max_size=7), st.data())
def test_a_walk_leaves_the_fsm_where_it_was(length: int, drafts: list[int], data: st.DataObject) -> None:
    parents = [0] + [data.draw(st.integers(0, node - 1)) for node in range(1, len(drafts))]
    grammar = behind(length, 1)
    masks = vocab_masks(grammar, drafts, parents)
    assert state(grammar) == ([1], False)
    for node in range(len(drafts)):  # a mask is what the path from the root says
        path = [node]
        while path[0]:
            path.insert(0, parents[path[0]])
        walked = behind(length, 1)
        legal = True
        for step in path[1:]:
            legal = legal and walked.allows(drafts[step])
            if legal:
                walked.accept_token(drafts[step])
        assert masks[node] == int(legal and walked.allows_only_stop())


# ------------------------------------------------------------------------------------------------------- in an engine
def run(config: EngineConfig, text: str) -> Session:
    session = Session(ReferenceSystem(), config, tuple(ORACLES))
    for event in parse_events(text):
        session.step(event)
    assert not session.violations and not session.skipped
    return session


EAGLE = EngineConfig(grammar=True)
PLAIN = EAGLE.with_(algorithm="NONE")


@pytest.mark.parametrize("topk", [1, 4])
@pytest.mark.parametrize("overlap", [True, False])
def test_a_run_past_the_end_is_cut_and_its_request_stops_there(topk: int, overlap: bool) -> None:
    config = EAGLE.with_(topk=topk, draft_token_num=8 if topk > 1 else 4, overlap=overlap)
    session = run(config, "submit(a,4,9,grammar=3) prefill(a) settle prepare verify(a=4) settle")
    req = session.state.reqs["a"]
    assert (req.finished_reason, req.finished_len) == ("stop", 3) and req.output_ids[-1] == STOP_TOKEN
    assert req.grammar_terminated and req.grammar_accepted == req.output_ids
    assert req.kv_committed_len == 4 + 2  # the root and two accepted drafts; the rest of the run is not committed
    assert req.spec_num_correct_drafts == 3  # which the draft had right all the same


@pytest.mark.parametrize(
    ("tokens", "retained", "aborted"),
    [
        ([2, 3], [2, 3], False),
        ([2, STOP_TOKEN, 3, 4], [2, STOP_TOKEN], False),  # up to the end of the text
        ([2, 3, 4, 5], [2, 3], True),  # no mask can have let the third one through
    ],
)
def test_a_run_is_retained_as_far_as_its_grammar_goes(tokens: list[int], retained: list[int], aborted: bool) -> None:
    processor = Scheduler(EAGLE, open_device("cpu")).result_processor
    req = Req("a", (1, 2, 3, 4), 9, behind(4, 1))
    assert processor.accept_grammar_tokens(req, tokens) == retained
    assert req.grammar is not None and req.grammar.accepted == [1, *retained]
    assert (req.to_finish == "abort") is aborted


def test_a_verify_lets_the_fsm_accept_what_is_queued_and_a_settle_doesnt_again() -> None:
    session = run(EAGLE, "submit(a,4,9,grammar=8) prefill(a) prepare verify(a=2)")
    req = session.state.reqs["a"]
    assert not req.output_ids and len(req.grammar_accepted or ()) == 1
    assert [view.grammar_advanced for view in session.state.launches] == [True, False]
    session.step(*parse_events("settle"))
    req = session.state.reqs["a"]
    assert len(req.output_ids) == 1 and req.grammar_accepted == req.output_ids


#: The streams wait for each other twice until a second launch has run.
WORK = 2 * " advance(schedule,64) advance(forward,64)"


def test_a_plain_forward_is_sampled_behind_the_result_ahead_of_it() -> None:
    session = run(PLAIN, "submit(a,4,9,grammar=8) prefill(a) prepare verify" + WORK)
    assert [view.published for view in session.state.launches] == [True, True]
    assert [view.exit is None for view in session.state.launches] == [False, True]
    for event in parse_events("settle" + WORK):
        session.step(event)
    assert [view.exit is None for view in session.state.launches] == [False]
    free = run(PLAIN, "submit(a,4,9) prefill(a) prepare verify" + WORK)
    assert [view.exit is None for view in free.state.launches] == [False, False]


def test_the_fsm_stays_where_the_output_is_when_a_retraction_loses_a_run() -> None:
    session = run(
        EAGLE, "submit(a,4,9,grammar=8) prefill(a) settle prepare verify(a=3) retract(a) settle prefill(a) settle"
    )
    req = session.state.reqs["a"]
    assert len(req.output_ids) == 2 and req.grammar_accepted == req.output_ids
