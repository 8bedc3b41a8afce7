"""The reference behind the port: which receipts the main flows give, and what a snapshot costs and shares."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

import pytest

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Settle
from specfuzz.core.legality import Ledger
from specfuzz.core.notation import parse_events
from specfuzz.core.receipt import Receipt
from specfuzz.errors import EngineFault
from specfuzz.session import Session
from specfuzz.systems.reference import ReferenceSystem

START = "submit(a,5,12) prefill(a) settle"


def run(text: str, **fields: object) -> Session:
    """A session after these events, every one of which is legal."""
    session = Session(ReferenceSystem(), EngineConfig().with_(**fields), (), keep_digest=True)
    for event in parse_events(text):
        session.step(event)
    assert session.skipped == 0, "an event of this test is not legal"
    return session


def last(text: str, **fields: object) -> Receipt:
    """The receipt of the last of these events."""
    return run(text, **fields).steps[-1].receipt


def outputs(session: Session, rid: str) -> tuple[int, ...]:
    return session.state.reqs[rid].output_ids


def expected(session: Session, rid: str) -> tuple[int, ...]:
    """Plain decoding's text, as far as the engine has come."""
    asked = session.ledger.requests[rid]
    start = asked.submit.prompt_len
    return tuple(asked.text.token(start + index) for index in range(len(outputs(session, rid))))


# ------------------------------------------------------------------------------------------------- events to receipts


def test_a_prefill_admits_the_whole_prompt() -> None:
    receipt = last("submit(a,5,12) prefill(a)")
    assert (receipt.launch, receipt.mode, receipt.rows, receipt.admitted) == (1, "EXTEND", ("a",), (("a", 0, 5),))


@pytest.mark.parametrize(("page_size", "prefix"), [(1, 7), (4, 4)])
def test_a_prefill_starts_behind_the_cached_prefix(page_size: int, prefix: int) -> None:
    """Of 8 shared tokens bigram keys share 7, in whole pages."""
    receipt = last("submit(a,10,4,8) prefill(a) settle submit(b,10,4,8) prefill(b)", page_size=page_size)
    assert receipt.admitted == (("b", prefix, 10 - prefix),)


def test_plain_decoding_shares_one_token_more_than_bigrams_do() -> None:
    receipt = last("submit(a,10,4,8) prefill(a) settle submit(b,10,4,8) prefill(b)", algorithm="NONE")
    assert receipt.admitted == (("b", 8, 2),)


def test_a_prefill_without_a_free_row_is_refused_and_changes_nothing() -> None:
    session = run("submit(a,5,12) prefill(a) settle submit(b,5,12)", max_reqs=1)
    before = session.state
    session.step(parse_events("prefill(b)")[0])
    assert session.steps[-1].receipt == Receipt(refused="no free row")
    assert session.state.pool is before.pool and session.state.waiting == ("b",)


def test_a_prefill_without_room_is_refused() -> None:
    assert last("submit(a,20,4) prefill(a) submit(b,20,4) prefill(b)", num_pages=32).refused == "no room in the KV pool"


def test_a_verify_settles_the_accepted_run_of_every_row() -> None:
    session = run(f"{START} submit(b,4,12) prefill(b) settle prepare verify(a=3,b=1) settle")
    receipt = session.steps[-1].receipt
    assert receipt.settled == 3
    assert [(rid, len(tokens)) for rid, tokens in receipt.emitted] == [("a", 3), ("b", 1)]
    assert outputs(session, "a") == expected(session, "a")


@pytest.mark.parametrize("accept", [1, 2, 3, 4])
def test_a_verify_accepts_exactly_what_it_is_asked_for(accept: int) -> None:
    for fields in ({}, {"overlap": False}, {"page_size": 4}):
        assert len(last(f"{START} prepare verify(a={accept}) settle", **fields).emitted[0][1]) == accept


def test_a_longer_wish_accepts_the_whole_window() -> None:
    assert len(last(f"{START} prepare verify(a=9) settle").emitted[0][1]) == 4


def test_pressure_retracts_the_row_with_the_fewest_outputs() -> None:
    text = "submit(a,6,12) submit(b,6,12) prefill(a) settle prepare verify(a=2) settle prefill(b) settle prepare"
    receipt = last(text, num_pages=24)
    assert (receipt.retracted, receipt.rows) == (("b",), ("a",))


def test_pressure_on_the_only_row_aborts_it() -> None:
    text = "submit(a,13,20) prefill(a) settle prepare verify(a=4) settle prepare"
    receipt = last(text, num_pages=24)
    assert receipt.finished == (("a", "abort", None),) and receipt.rows == ()


def test_a_row_that_the_queued_result_ends_by_length_is_dropped_from_the_decode() -> None:
    session = run("submit(a,5,2) prefill(a) settle submit(b,5,9) prefill(b) settle prepare verify prepare")
    receipt = session.steps[-1].receipt
    assert (receipt.dropped, receipt.rows) == (("a",), ("b",))


def test_a_decode_is_skipped_where_a_dropped_row_is_about_to_give_back_its_kv() -> None:
    receipt = last("submit(a,6,1) submit(b,6,12) prefill(b) settle prefill(a) prepare", num_pages=19)
    assert receipt.skipped and receipt.dropped == ("a",) and receipt.retracted == () and receipt.rows == ()


def test_an_abort_drops_a_waiting_request_at_once() -> None:
    session = run("submit(a,5,9) abort(a)")
    assert session.steps[-1].receipt.finished == (("a", "abort", None),)
    assert session.state.waiting == () and session.state.reqs["a"].finished_reason == "abort"


def test_an_abort_ends_a_running_request_at_its_next_processed_result() -> None:
    session = run(f"{START} prepare verify(a=2) abort(a)")
    assert session.steps[-1].receipt == Receipt() and session.state.reqs["a"].to_finish
    session.step(Settle())
    assert session.steps[-1].receipt.finished == (("a", "abort", None),)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_stop_inside_an_accepted_run_ends_the_text_there(at: int) -> None:
    session = run(f"{START} finish(a@{at}) prepare verify(a=4) settle")
    assert session.steps[-1].receipt.finished == (("a", "stop", at + 1),)
    emitted = session.state.reqs["a"].emitted
    assert len(emitted) == at + 1 and emitted == expected(session, "a")[: at + 1]


def test_a_run_that_crosses_the_cap_ends_at_the_cap() -> None:
    assert last("submit(a,5,3) prefill(a) settle prepare verify(a=4) settle").finished == (("a", "length", 3),)


def test_a_row_that_finished_between_prepare_and_launch_is_dead_in_that_launch() -> None:
    session = run(f"{START} prepare verify(a=2) abort(a) prepare settle verify")
    launch = session.state.launches[-1]
    assert (launch.rids, launch.dead) == (("a",), ("a",))
    session.step(Settle())
    assert session.steps[-1].receipt.emitted == () and len(outputs(session, "a")) == 3


def test_a_late_result_changes_nothing_on_a_finished_request() -> None:
    session = run(f"{START} finish(a@2) prepare verify(a=4) prepare verify(a=4) settle")
    ended = session.state.reqs["a"]
    session.step(Settle())
    late = session.state.reqs["a"]
    assert ended.finished_reason == "stop" and session.steps[-1].receipt.emitted == ()
    assert (late.output_ids, late.kv_committed_len, late.spec_verify_ct) == (
        ended.output_ids, ended.kv_committed_len, ended.spec_verify_ct,
    )  # fmt: skip


def test_a_late_result_changes_nothing_on_a_retracted_request() -> None:
    session = run(f"{START} prepare verify(a=3) retract(a) settle")
    assert session.steps[-1].receipt.emitted == ()
    assert len(outputs(session, "a")) == 1 and session.state.reqs["a"].kv_committed_len == 0


def test_a_retracted_request_goes_on_where_its_settled_text_ends() -> None:
    session = run(f"{START} prepare verify(a=3) settle retract(a) prefill(a) settle prepare verify(a=4) settle")
    assert len(outputs(session, "a")) == 1 + 3 + 1 + 4
    assert outputs(session, "a") == expected(session, "a")


def test_an_eviction_says_how_many_tokens_left_the_tree() -> None:
    session = run("submit(a,5,1) prefill(a) settle evict(2)")
    assert session.steps[-1].receipt.evicted == 4  # a whole leaf: four bigram keys of five tokens
    assert session.state.pool.available == session.config.pool_tokens


def test_idle_settles_everything_and_drains_the_device() -> None:
    session = run(f"{START} prepare verify(a=2) prepare verify(a=3) idle")
    assert session.state.queue == () and session.state.device is not None and session.state.device.pending == 0
    assert len(outputs(session, "a")) == 6 and session.steps[-1].receipt.settled == 3


# ---------------------------------------------------------------------------------------------- snapshots and progress

LONG = (
    "submit(a,9,14,6) submit(b,8,9,6) prefill(a) prefill(b) settle prepare verify(a=3) publish settle "
    "prepare verify(a=2,b=4) advance(forward,3) abort(b) settle prepare verify(a=4) finish(a@12) settle idle evict(4)"
)


def test_unchanged_records_are_the_same_objects() -> None:
    session = run(f"{START} submit(b,4,9) prefill(b) settle prepare verify idle")
    before = session.state
    session.step(parse_events("submit(c,4,9)")[0])
    after = session.state
    assert after.pool is before.pool and after.device is before.device and after.relay is before.relay
    assert all(after.reqs[rid] is before.reqs[rid] for rid in ("a", "b"))
    assert after.batches[0] is before.batches[0]


def test_only_the_request_that_changed_has_a_new_record() -> None:
    session = run("submit(a,4,9) submit(b,4,9) prefill(a)")
    before = session.state
    session.step(Settle())
    assert session.state.reqs["b"] is before.reqs["b"] and session.state.reqs["a"] is not before.reqs["a"]


@pytest.mark.parametrize("overlap", [True, False])
def test_a_snapshot_runs_no_device_work(overlap: bool) -> None:
    system, config = ReferenceSystem(), EngineConfig(overlap=overlap)
    system.reset(config)
    ledger = Ledger(config)
    for event in parse_events(LONG):
        if ledger.admits(event):
            ledger.record(event, system.apply(event))
            before = system.device.progress, system.device.pending()
            system.snapshot()
            assert (system.device.progress, system.device.pending()) == before


def test_publish_runs_the_device_up_to_the_publish_and_no_further() -> None:
    session = run(f"{START} prepare verify(a=3) publish")
    launch, relay = session.state.launches[-1], session.state.relay
    assert relay is not None and session.state.device is not None
    assert launch.published and session.state.device.pending > 0
    row = relay.rows["a"]
    assert row.new_seq_len == 8 and row.output_token is None  # the stash comes after the publish


def test_a_host_event_leaves_its_device_work_pending() -> None:
    session = run("submit(a,5,12) prefill(a)")
    assert session.lazy and session.state.device is not None and session.state.device.pending > 0
    assert session.state.launches[-1].entry is None


def test_without_overlap_everything_runs_on_one_stream() -> None:
    system, config = ReferenceSystem(), EngineConfig(overlap=False)
    system.reset(config)
    for event in parse_events("submit(a,5,12) prefill(a)"):
        system.apply(event)
    assert system.device.pending() == system.device.pending("schedule") > 0


def test_the_launch_shows_what_the_worker_saw_and_decided() -> None:
    session = run(f"{START} prepare verify(a=3) idle")
    launch = session.state.launches[-1]
    assert launch.entry is not None and launch.exit is not None
    assert launch.entry.seq_lens == (5,) and launch.entry.bonus == outputs(session, "a")[:1]
    assert (launch.exit.accept_lens, launch.exit.new_seq_lens, launch.exit.published) == ((3,), (8,), (8,))


# --------------------------------------------------------------------------------------------------- the port's edges


def test_capabilities_follow_the_configuration() -> None:
    found = ReferenceSystem(check_races=False).capabilities(EngineConfig(algorithm="NONE", overlap=False, radix=False))
    missing = Capability.SPECULATIVE | Capability.OVERLAP | Capability.RADIX | Capability.RACE_CHECK | Capability.PAGED
    assert not found & missing and Capability.LAZY_DEVICE in found


def test_whatever_the_engine_raises_is_an_engine_fault_that_names_the_place() -> None:
    system = ReferenceSystem(patch=lambda engine: setattr(engine.tree_cache, "evict", None))
    system.reset(EngineConfig())
    with pytest.raises(EngineFault, match="not callable") as caught:
        system.apply(parse_events("evict(1)")[0])
    assert caught.value.where.startswith("TypeError in")


# --------------------------------------------------------------------------------------------------------- determinism


@pytest.mark.parametrize(
    "fields",
    [{}, {"algorithm": "NONE"}, {"overlap": False}, {"page_size": 4, "num_pages": 40}],
    ids=["eagle", "none", "sync", "paged"],
)
def test_two_runs_of_one_event_list_give_one_digest(fields: dict[str, object]) -> None:
    first, second = (digest_of(fields) for _ in range(2))
    assert first == second


def digest_of(fields: dict[str, object]) -> str:
    session = Session(ReferenceSystem(), EngineConfig().with_(**fields), (), keep_digest=True)
    events: tuple[Event, ...] = parse_events(LONG)
    for event in events:
        session.step(event)
    assert len(session.steps) >= 15
    return session.digest()


@pytest.mark.parametrize("fields", [{}, {"algorithm": "NONE"}, {"overlap": False}], ids=["eagle", "none", "sync"])
def test_numpy_and_torch_kernels_give_one_digest(fields: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for face in ("numpy", "torch"):
        monkeypatch.setenv("SPECFUZZ_ARRAYS", face)
        digests.add(digest_of(fields))
    assert len(digests) == 1


def test_a_fresh_start_frees_the_engine_before_it_without_the_garbage_collector() -> None:
    """In the middle of a run: requests, launches in flight and queued operations included."""
    system = ReferenceSystem()
    gc.disable()
    try:
        session = Session(system, EngineConfig(), ())
        for event in parse_events("submit(a,4,9) prefill(a) prepare verify(a=3) prepare verify"):
            session.step(event)
        scheduler = weakref.ref(system.scheduler)
        device, watcher = weakref.ref(system.device), weakref.ref(system.watcher)
        batch = weakref.ref(system.scheduler.running_batch)
        system.reset(EngineConfig())
        assert (scheduler(), device(), watcher(), batch()) == (None, None, None, None)
    finally:
        gc.enable()


#: `digest_of({})` without pytest, to save its import.
DIGEST = f"""
from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import parse_events
from specfuzz.session import Session
from specfuzz.systems.reference import ReferenceSystem
session = Session(ReferenceSystem(), EngineConfig(), (), keep_digest=True)
for event in parse_events({LONG!r}):
    session.step(event)
print(session.digest())
"""


@pytest.mark.slow
def test_five_fresh_processes_with_different_hash_seeds_give_one_digest() -> None:
    command = [sys.executable, "-c", DIGEST]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONHASHSEED": str(seed)})
        for seed in range(5)
    ]
    answers = {process.communicate(timeout=120)[0].strip() for process in started}
    assert answers == {digest_of({})}
