"""What the real scheduler classes do behind the port: one scenario a test, judged by every oracle."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import (
    Abort,
    Event,
    Evict,
    Finish,
    Idle,
    Prefill,
    Prepare,
    Publish,
    Retract,
    Settle,
    Submit,
    Verify,
)
from specfuzz.core.legality import Ledger
from specfuzz.core.oracle import ORACLES
from specfuzz.core.port import System
from specfuzz.errors import ConfigError
from specfuzz.session import Session
from tests.systems.sglang.conftest import Run

pytestmark = pytest.mark.engine("sglang")

EAGLE = EngineConfig(algorithm="EAGLE", overlap=True)
ROUND = (Prepare(), Verify((("a", 3), ("b", 2))), Settle())


def both(*, prompt: int = 9, cap: int = 12) -> tuple[Event, ...]:
    """Two requests, prefilled one after the other; the second extend is still in flight."""
    return (Submit("a", prompt, cap), Submit("b", 5, cap), Prefill("a"), Prefill("b"), Settle())


@pytest.mark.parametrize("page_size", [1, 4, 16, 64])
@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "sync"])
@pytest.mark.parametrize("algorithm", ["NONE", "EAGLE"])
def test_two_requests_run_to_their_caps_and_leave_the_pool_whole(
    judged: Run, algorithm: str, overlap: bool, page_size: int
) -> None:
    config = EngineConfig(algorithm=algorithm, overlap=overlap, page_size=page_size, num_pages=max(8, 128 // page_size))
    lead = (
        both(cap=4)
        if overlap
        else (Submit("a", 9, 4), Submit("b", 5, 4), Prefill("a"), Settle(), Prefill("b"), Settle())
    )
    session = judged(config, [*lead, *ROUND[:2], Settle(), Idle()])
    for _ in range(8):
        for event in ROUND:
            session.step(event)
    session.step(Idle())
    assert not session.violations
    state = session.state
    assert {req.finished_reason for req in state.reqs.values()} == {"length"}
    assert state.pool.available + state.pool.evictable == config.pool_tokens
    assert state.pool.protected == 0
    assert len(state.pool.free_rows) == config.max_reqs


def test_a_stop_inside_an_accepted_run_ends_the_request_there(judged: Run) -> None:
    session = judged(EAGLE, [*both(), Finish("a", 2), Prepare(), Verify((("a", 4),)), Settle(), Settle()])
    req = session.state.reqs["a"]
    assert (req.finished_reason, req.finished_len, len(req.output_ids)) == ("stop", 3, 5)


def test_a_stop_at_the_cap_is_a_stop(judged: Run) -> None:
    session = judged(EAGLE, [*both(cap=3), Finish("a", 2), Prepare(), Verify((("a", 4),)), Settle(), Settle()])
    req = session.state.reqs["a"]
    assert (req.finished_reason, req.finished_len) == ("stop", 3)


def test_an_abort_in_flight_takes_effect_at_the_next_result(judged: Run) -> None:
    session = judged(EAGLE, [*both(), Prepare(), Verify((("a", 2),)), Abort("a")])
    assert session.state.reqs["a"].to_finish
    judged_more = [session.step(Settle()), session.step(Settle())]
    assert judged_more == [[], []]
    assert session.state.reqs["a"].finished_reason == "abort"
    assert len(session.state.reqs["a"].output_ids) == 3


def test_a_shared_prefix_is_matched_one_bigram_short(judged: Run) -> None:
    events = [Submit("a", 9, 4, 9), Prefill("a"), Settle(), Submit("b", 9, 4, 9), Prefill("b"), Settle()]
    session = judged(EAGLE, events)
    admitted = session.steps[4].receipt
    assert admitted is not None
    assert admitted.admitted == (("b", 7, 2),)


def test_pressure_retracts_and_the_request_resumes_with_its_text(judged: Run) -> None:
    config = EngineConfig(algorithm="EAGLE", overlap=True, num_pages=32)
    session = judged(config, [*both(cap=30), *ROUND, *ROUND, Prepare()])
    retracted = [rid for step in session.steps if step.receipt is not None for rid in step.receipt.retracted]
    assert retracted == ["b"] or retracted == ["a"]
    victim = retracted[0]
    for event in (
        Settle(),
        Verify(),
        Settle(),
        Idle(),
        Abort("a" if victim == "b" else "b"),
        Prepare(),
        Verify(),
        Idle(),
    ):
        session.step(event)
    session.step(Prefill(victim))
    session.step(Settle())
    assert not session.violations
    assert session.state.reqs[victim].req_pool_idx is not None


def test_a_chosen_row_can_be_retracted_and_its_late_result_is_inert(judged: Run) -> None:
    session = judged(EAGLE, [*both(), Prepare(), Verify((("a", 3),)), Settle(), Retract("a"), Settle()])
    req = session.state.reqs["a"]
    assert req.is_retracted and len(req.output_ids) == 1
    assert "a" in session.state.waiting


def test_a_prefill_beyond_the_pool_is_refused_and_changes_nothing(judged: Run) -> None:
    config = EngineConfig(algorithm="EAGLE", overlap=True, num_pages=20)
    session = judged(config, [Submit("a", 12, 4), Prefill("a"), Settle(), Submit("b", 12, 4), Prefill("b")])
    refused = session.steps[-1].receipt
    assert refused is not None
    assert refused.refused == "no room in the KV pool"
    assert session.state.waiting == ("b",)


def test_publish_is_accepted_and_the_device_never_lags(judged: Run) -> None:
    session = judged(EAGLE, [Submit("a", 4, 4), Prefill("a"), Publish(), Settle()])
    assert session.state.device is not None
    assert session.state.device.pending == 0
    assert Capability.LAZY_DEVICE not in session.capabilities


def test_an_evict_takes_whole_leaves(judged: Run) -> None:
    session = judged(EAGLE, [Submit("a", 9, 1), Prefill("a"), Settle(), Evict(1)])
    receipt = session.steps[-1].receipt
    assert receipt is not None
    assert receipt.evicted == 8


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"algorithm": "EAGLE3"}, "algorithm"),
    ],
)
def test_a_configuration_that_is_not_driven_names_both_fields(
    sglang: System, change: dict[str, object], field: str
) -> None:
    with pytest.raises(ConfigError, match=rf"`{field}`=.*`system`=sglang"):
        sglang.reset(EAGLE.with_(**change))


def random_events(ledger: Ledger, seed: int, count: int) -> Iterator[Event]:
    """Legal events, in disorder; enough of each kind to reach retraction, aborts and stops in small pools."""
    rng = random.Random(seed)
    kinds = ("submit", "prefill", "prefill", "prepare", "prepare", "verify", "verify", "settle", "settle", "odd")
    while count:
        rid, prompt = rng.choice(list(ledger.requests) or ["r0"]), rng.randint(2, 20)
        odd: list[Event] = [Finish(rid, rng.randint(0, 12)), Abort(rid), Retract(rid), Evict(3), Idle()]
        event: Event = {
            "submit": Submit(
                f"r{len(ledger.requests)}", prompt, rng.randint(1, 24), rng.choice((0, prompt // 2, prompt))
            ),
            "prefill": Prefill(rid),
            "prepare": Prepare(),
            "verify": Verify(tuple((row, rng.randint(1, 4)) for row in ledger.prepared or ())),
            "settle": Settle(),
            "odd": rng.choice(odd),
        }[rng.choice(kinds)]
        if ledger.admits(event) and not (isinstance(event, Submit) and len(ledger.live()) > 5):
            count -= 1
            yield event


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "sync"])
@pytest.mark.parametrize("algorithm", ["NONE", "EAGLE"])
def test_random_runs_break_no_oracle_and_repeat_exactly(
    sglang: System, algorithm: str, overlap: bool, page_size: int
) -> None:
    config = EngineConfig(algorithm=algorithm, overlap=overlap, page_size=page_size, num_pages=44 // page_size + 2)
    for seed in range(3):
        digests = set()
        for _ in range(2):
            session = Session(sglang, config, tuple(ORACLES), keep_digest=True)
            for event in random_events(session.ledger, seed, 50):
                assert session.step(event) == []
            digests.add(session.digest())
        assert len(digests) == 1
