"""The reference behind the port: prompts in chunks, and prefills that the running rows ride along with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Phase
from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import ORACLES
from specfuzz.core.phase import phase_of
from specfuzz.core.receipt import Receipt
from specfuzz.errors import ConfigError
from specfuzz.reference.algorithms import ALGORITHMS
from specfuzz.session import Session
from specfuzz.systems.reference import ReferenceSystem

BOTH_LOOPS = pytest.mark.parametrize("overlap", [True, False])
ALGORITHM = pytest.mark.parametrize("algorithm", ["EAGLE", "NONE"])


def run(text: str, **fields: object) -> Session:
    """A session after these events, all of them legal; every oracle holds on the way."""
    config = EngineConfig(mixed_chunk=True, chunked_prefill=True).with_(**fields)
    session = Session(ReferenceSystem(), config, [ORACLES.get(name) for name in ORACLES.names()])
    for event in parse_events(text):
        assert session.step(event) == []
    assert session.skipped == 0, "an event of this test is not legal"
    return session


def receipts(session: Session, *verbs: str) -> list[Receipt]:
    """Receipts of the events whose notation starts with one of the verbs."""
    return [step.receipt for step in session.steps if type(step.event).__name__.lower() in verbs]


def text_of(session: Session, rid: str) -> tuple[int, ...]:
    """What plain decoding has said at the place where the engine stands."""
    req, asked = session.state.reqs[rid], session.ledger.requests[rid]
    return tuple(asked.text.token(req.prompt_len + index) for index in range(len(req.output_ids)))


# -------------------------------------------------------------------------------------------------------------- chunks
@BOTH_LOOPS
@ALGORITHM
def test_a_prompt_in_three_chunks_says_what_it_says_in_one(algorithm: str, overlap: bool) -> None:
    session = run(
        "submit(a,10,6) prefill(a,4) settle prefill(a,4) settle prefill(a) settle prepare verify(a=3) settle idle",
        algorithm=algorithm, overlap=overlap,
    )  # fmt: skip
    assert [r.admitted for r in receipts(session, "prefill")] == [
        (("a", 0, 4),), (("a", 4, 4),), (("a", 8, 2),)
    ]  # fmt: skip
    assert [len(r.emitted) for r in receipts(session, "settle")] == [0, 0, 1, 1]
    assert session.state.reqs["a"].output_ids == text_of(session, "a")


def test_a_middle_chunk_is_counted_until_its_result_is_settled() -> None:
    session = run("submit(a,10,6) prefill(a,4) prefill(a,3)")
    assert session.state.reqs["a"].inflight_middle_chunks == 2
    session.step(parse_events("settle")[0])
    assert session.state.reqs["a"].inflight_middle_chunks == 1
    assert phase_of("a", session.ledger, session.state) is Phase.EXTENDING


def test_the_first_chunk_ends_with_a_page_and_a_smaller_one_is_refused() -> None:
    session = run("submit(a,10,6) prefill(a,3) prefill(a,6)", page_size=4)
    small, cut = receipts(session, "prefill")
    assert small.refused is not None and small.launch is None
    assert cut.admitted == (("a", 0, 4),)


def test_a_chunk_that_holds_the_filled_up_last_page_is_the_whole_prompt() -> None:
    assert receipts(run("submit(a,10,6) prefill(a,12)", page_size=4), "prefill")[0].admitted == (("a", 0, 10),)


def test_nobody_else_is_prefilled_while_a_prompt_goes_on() -> None:
    session = run("submit(a,10,6) submit(b,4,6) prefill(a,4)")
    assert session.ledger.waiting() == ["a"] and not session.ledger.admits(parse_events("prefill(b)")[0])


def test_running_rows_decode_between_two_chunks() -> None:
    session = run("submit(a,4,9) prefill(a) settle submit(b,9,3) prefill(b,4) prepare verify(a=2) settle settle")
    assert session.state.running == ("a",) and session.ledger.chunked() == "b"


def test_the_draft_of_a_middle_chunk_is_followed_by_the_next_prompt_token() -> None:
    session = run("submit(a,8,9) prefill(a,4) prefill(a) settle settle prepare verify(a=4) settle")
    assert [len(tokens) for _rid, tokens in receipts(session, "settle")[-1].emitted] == [4]


@pytest.mark.parametrize("then", ["settle settle", "idle"])
def test_an_abort_between_chunks_waits_for_the_next_scheduling_step(then: str) -> None:
    session = run("submit(b,4,9) prefill(b) settle submit(a,10,6) prefill(a,4) abort(a)")
    assert session.steps[-1].receipt == Receipt() and session.state.reqs["a"].req_pool_idx is not None
    session.step(parse_events("prepare")[0])
    assert session.steps[-1].receipt.finished == (("a", "abort", None),)
    assert session.state.reqs["a"].req_pool_idx is None and session.state.reqs["a"].inflight_middle_chunks == 1
    for event in parse_events(f"verify {then}"):
        assert session.step(event) == []
    assert session.state.reqs["a"].inflight_middle_chunks == 0 and session.state.reqs["a"].output_ids == ()


def test_a_stashed_chunk_may_stay_cached_before_it_has_run() -> None:
    """The abort takes the row away that would name its slots, and the tree keeps what it has taken over."""
    session = run(
        "submit(c,4,1) prefill(c) idle submit(b,4,9) prefill(b) settle submit(a,10,6) prefill(a,4) retract(b) abort(a) "
        "prefill(b) evict(1) idle"
    )
    assert session.state.reqs["a"].finished_reason == "abort"


def test_an_idle_scheduler_drops_an_aborted_chunk() -> None:
    session = run("submit(a,10,6) prefill(a,4) abort(a) idle")
    assert receipts(session, "idle")[0].finished == (("a", "abort", None),)
    assert len(session.state.pool.free_pages) == EngineConfig().num_pages


def test_one_that_was_aborted_before_its_retraction_goes_on_to_its_last_chunk() -> None:
    text = (
        "submit(a,8,4) prefill(a) settle abort(a) retract(a) prefill(a,4) settle prefill(a,2) settle prefill(a) settle"
    )
    session = run(text, radix=False)
    assert receipts(session, "settle")[-1].finished == (("a", "abort", None),)


def test_a_chunk_goes_on_in_its_last_page_though_the_pool_is_empty_and_no_further() -> None:
    text = (
        "submit(a,4,8) prefill(a) settle submit(c,4,8) prefill(c) settle submit(b,9,1) prefill(b,4) settle "
        "prefill(b,2) settle prepare verify settle prefill(b,2) settle prefill(b)"
    )
    session = run(text, algorithm="NONE", page_size=4, num_pages=6, radix=False)
    *_, within, beyond = receipts(session, "prefill")
    assert within.admitted == (("b", 6, 2),) and beyond.refused is not None


# --------------------------------------------------------------------------------------------------------------- mixed
def test_admission_sets_a_token_aside_for_every_row_that_may_ride_along() -> None:
    text = "submit(a,4,8) prefill(a) settle submit(b,7,1) prefill(b)"
    assert receipts(run(text, num_pages=13), "prefill")[1].refused is not None
    assert receipts(run(text, num_pages=13, mixed_chunk=False), "prefill")[1].refused is None


def test_the_tree_takes_what_a_prefill_was_launched_with_and_not_the_claim_of_its_tail() -> None:
    session = run("submit(a,2,2) submit(b,2,1) prefill(a) mix(b) settle", algorithm="NONE")
    assert (session.state.reqs["a"].cache_protected_len, session.state.reqs["a"].kv_committed_len) == (2, 3)


def test_a_tail_is_bound_to_the_frontier_that_the_host_does_not_know_yet() -> None:
    session = run("submit(a,4,9) prefill(a) settle submit(b,5,3) prepare verify(a=3) mix(b) settle")
    req = session.state.reqs["a"]
    session.step(parse_events("publish")[0])
    (launch,) = session.state.launches
    assert launch.entry is not None and launch.mode == "MIXED" and launch.rids == ("b", "a")
    assert launch.committed == (5, 4) and req.kv_committed_len == 7
    assert launch.entry.seq_lens == (5, 8) and launch.entry.prefix_lens == (0, 7)
    assert launch.entry.window[1] == (req.slots[7],)


@BOTH_LOOPS
@ALGORITHM
def test_a_tail_takes_one_token_and_commits_one(algorithm: str, overlap: bool) -> None:
    session = run(
        "submit(a,4,9) prefill(a) settle submit(b,5,3) mix(b) settle idle", algorithm=algorithm, overlap=overlap
    )
    mixed = receipts(session, "mix")[0]
    assert (mixed.mode, mixed.rows, mixed.admitted) == ("MIXED", ("b", "a"), (("b", 0, 5),))
    assert session.state.reqs["a"].kv_committed_len == 5 and session.state.reqs["b"].kv_committed_len == 5
    for rid in "ab":
        assert session.state.reqs[rid].output_ids == text_of(session, rid)


@BOTH_LOOPS
def test_a_chunk_and_its_tails_go_on_as_what_they_were(overlap: bool) -> None:
    session = run(
        "submit(a,4,9) prefill(a) settle submit(b,9,3) mix(b,4) settle mix(b,4) settle mix(b) settle "
        "prepare verify(a=2,b=3) settle",
        overlap=overlap,
    )
    assert [r.admitted[0][1:] for r in receipts(session, "mix")] == [(0, 4), (4, 4), (8, 1)]
    assert [len(session.state.reqs[rid].output_ids) for rid in "ab"] == [6, 4]


def test_rows_certain_to_finish_do_not_ride_along() -> None:
    session = run("submit(a,4,2) prefill(a) settle submit(b,5,3) prepare verify mix(b)")
    mixed = receipts(session, "mix")[0]
    assert (mixed.mode, mixed.rows, mixed.dropped) == ("EXTEND", ("b",), ("a",))


def test_rows_without_room_sit_the_step_out() -> None:
    session = run("submit(a,4,9) prefill(a) settle submit(b,5,3) mix(b)", num_pages=14, context_len=16, radix=False)
    assert (receipts(session, "mix")[0].mode, session.state.running) == ("EXTEND", ("a",))


def test_an_algorithm_that_cannot_mix_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    eagle = ALGORITHMS.get("EAGLE")
    unable = replace(eagle, capabilities=eagle.capabilities & ~Capability.MIXED_CHUNK)
    monkeypatch.setattr(type(ALGORITHMS), "get", lambda self, name: unable if name == "EAGLE" else eagle)
    with pytest.raises(ConfigError, match="`mixed_chunk`=True does not fit `algorithm`=EAGLE"):
        ReferenceSystem().capabilities(EngineConfig(mixed_chunk=True))
