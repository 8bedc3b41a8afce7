"""Lockstep of two scripted systems: what is compared, what is not, and who is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Idle, Publish, Settle
from specfuzz.core.notation import parse_events
from specfuzz.core.port import Comparing, System
from specfuzz.core.receipt import NOTHING, Receipt
from specfuzz.core.snapshot import BatchView, CachedPath, LaunchView, PoolView, RelayRow, RelayView, ReqView, Snapshot
from specfuzz.core.verdict import Violation
from specfuzz.errors import EngineFault
from specfuzz.session import Session
from specfuzz.systems import lockstep
from specfuzz.systems.lockstep import LockstepSystem
from specfuzz.systems.lockstep_exclusions import EXCLUSIONS, Exclusion
from tests.trace.toy import ORACLES, ToySystem

REQ = ReqView(rid="a", prompt_len=4, max_new=9, output_ids=(7,), kv_committed_len=4, req_pool_idx=1, slots=(5, 6, 7, 8))
POOL = PoolView(
    page_size=1, num_pages=8, max_reqs=2, free_pages=(1, 2, 3, 4), free_rows=(2,), available=4, evictable=0,
    protected=0, cached=(CachedPath(tokens=(1, 2), slots=(5, 6)),),
)  # fmt: skip
ROW = RelayRow(row=1, new_seq_len=5, output_token=7)
STATE = Snapshot(
    reqs={"a": REQ}, pool=POOL, running=("a",), queue=(1,),
    batches=(BatchView(name="running", rids=("a",), forward_mode="DECODE", seq_lens=(4,)),),
    launches=(LaunchView(number=1, mode="DECODE", rids=("a",), req_pool_indices=(1,), committed=(4,), allocated=(4,)),),
    relay=RelayView(rows={"a": ROW}, quiet=True),
)  # fmt: skip


class Scripted:
    """A system that shows one state and answers every event with one receipt, or a fault."""

    version = "1"

    def __init__(
        self, name: str, state: Snapshot = STATE, receipt: Receipt = NOTHING, fault: str | None = None,
        can: Capability = Capability.NONE,
    ) -> None:  # fmt: skip
        self.name, self.state, self.receipt, self.fault, self.can = name, state, receipt, fault, can
        self.seen: list[Event] = []
        self.closed = 0

    def capabilities(self, config: EngineConfig) -> Capability:
        return self.can

    def reset(self, config: EngineConfig) -> None:
        self.seen = []

    def apply(self, event: Event) -> Receipt:
        self.seen.append(event)
        if self.fault:
            raise EngineFault(self.fault, kind="crash")
        return self.receipt

    def snapshot(self) -> Snapshot:
        return self.state

    def close(self) -> None:
        self.closed += 1


def differences(
    b: Snapshot, a: Snapshot = STATE, receipt_a: Receipt = NOTHING, receipt_b: Receipt = NOTHING
) -> tuple[list[Violation], LockstepSystem]:
    system = LockstepSystem(Scripted("one", a, receipt_a), Scripted("two", b, receipt_b))
    system.reset(EngineConfig())
    system.apply(Settle())
    return system.take_differences(3), system


def with_req(**changes: Any) -> Snapshot:
    return replace(STATE, reqs={"a": replace(REQ, **changes)})


def with_pool(**changes: Any) -> Snapshot:
    return replace(STATE, pool=replace(POOL, **changes))


def with_relay(quiet: bool = True, **changes: Any) -> Snapshot:
    return replace(STATE, relay=RelayView(rows={"a": replace(ROW, **changes)}, quiet=quiet))


def with_batch(**changes: Any) -> Snapshot:
    return replace(STATE, batches=(replace(STATE.batches[0], **changes),))


def test_it_is_a_system_that_compares() -> None:
    system = LockstepSystem(Scripted("one"), Scripted("two"))
    assert isinstance(system, System) and isinstance(system, Comparing)
    assert (system.name, system.version) == ("lockstep:one,two", "1,1")


def test_equal_systems_have_no_difference_and_every_field_counts() -> None:
    found, system = differences(STATE)
    assert not found and not system.excluded
    assert set(system.uncompared) == {
        "relay.topk_index",
        "relay.hidden",
        "metrics",
        "chunked",
        "batch.penalized",
        "launch.penalized",
    }  # neither shows them
    for field in ("req.kv_committed_len", "pool.free_pages", "relay.new_seq_len", "batch.seq_lens", "receipt.mode"):
        assert system.compared[field] == 1


DIFFERING: dict[str, tuple[Snapshot, str, str]] = {
    **{
        f"req.{name}": (with_req(**{name: value}), owner, "host")
        for name, value, owner in [
            ("output_ids", (7, 8), "result_processor"), ("kv_committed_len", 5, "result_processor"),
            ("kv_allocated_len", 5, "kv_allocator"), ("cache_protected_len", 1, "radix_cache"),
            ("finished_reason", "stop", "result_processor"), ("finished_len", 1, "result_processor"),
            ("to_finish", True, "scheduler"), ("is_retracted", True, "scheduler"), ("retraction_count", 1, "scheduler"),
            ("decode_batch_idx", 1, "scheduler"), ("extend_batch_idx", 1, "scheduler"),
            ("spec_verify_ct", 1, "result_processor"), ("spec_num_correct_drafts", 1, "result_processor"),
            ("spec_correct_drafts_histogram", (1,), "result_processor"), ("inflight_middle_chunks", 1, "scheduler"),
            ("grammar_accepted", (7,), "grammar"), ("grammar_terminated", True, "grammar"),
            ("holds_lock", True, "radix_cache"), ("slots", (5,), "kv_allocator"),
        ]
    },
    "req.holds_kv": (with_req(req_pool_idx=None), "req_to_token_pool", "host"),
    "reqs": (replace(STATE, reqs={"a": REQ, "b": replace(REQ, rid="b")}), "scheduler", "host"),
    "pool.free_pages": (with_pool(free_pages=(1,)), "kv_allocator", "host"),
    "pool.free_rows": (with_pool(free_rows=()), "req_to_token_pool", "host"),
    "pool.available": (with_pool(available=3), "kv_allocator", "host"),
    "pool.evictable": (with_pool(evictable=3), "radix_cache", "host"),
    "pool.protected": (with_pool(protected=3), "radix_cache", "host"),
    "pool.cached_slots": (with_pool(cached=()), "radix_cache", "host"),
    "queue.depth": (replace(STATE, queue=(1, 2)), "scheduler", "host"),
    "waiting": (replace(STATE, waiting=("a",)), "scheduler", "host"),
    "running": (replace(STATE, running=()), "scheduler", "host"),
    "prepared": (replace(STATE, prepared=("a",)), "scheduler", "host"),
    "batch.forward_mode": (with_batch(forward_mode="EXTEND"), "isolation", "host"),
    "batch.rids": (with_batch(rids=()), "scheduler", "host"),
    "batch.seq_lens": (with_batch(seq_lens=(5,)), "spec_worker", "device"),
    "launch.mode": (replace(STATE, launches=(replace(STATE.launches[0], mode="MIXED"),)), "scheduler", "host"),
    "relay.new_seq_len": (with_relay(new_seq_len=6), "future_map", "relay"),
    "relay.output_token": (with_relay(output_token=6), "future_map", "relay"),
}  # fmt: skip


@pytest.mark.parametrize("field", DIFFERING)
def test_a_field_that_differs_is_a_violation_with_an_owner_and_both_names(field: str) -> None:
    state, owner, clock = DIFFERING[field]
    found, _ = differences(state)
    violation = next(v for v in found if v.formula.startswith(f"a.{field}"))
    assert (violation.oracle, violation.owner, violation.clock, violation.phase) == (
        "lockstep", owner, clock, "after-event",
    )  # fmt: skip
    assert violation.fact.startswith("one: ") and violation.counterfact.startswith("two: ")
    assert violation.event_index == 3 and "`settle`" in violation.fact
    assert violation.rid == ("a" if field.startswith(("req.", "relay.")) else None)


@pytest.mark.parametrize(
    "receipt",
    [
        Receipt(launch=1), Receipt(mode="EXTEND"), Receipt(rows=("a",)), Receipt(admitted=(("a", 0, 4),)),
        Receipt(retracted=("a",)), Receipt(dropped=("a",)), Receipt(skipped=True), Receipt(settled=1),
        Receipt(emitted=(("a", (7,)),)), Receipt(finished=(("a", "stop", 1),)), Receipt(evicted=1),
        Receipt(refused="no"),
    ],
)  # fmt: skip
def test_every_decision_of_a_receipt_is_compared(receipt: Receipt) -> None:
    assert len(differences(STATE, receipt_b=receipt)[0]) == 1


def test_device_progress_and_words_are_not_decisions() -> None:
    assert not differences(STATE, receipt_b=Receipt(executed=9))[0]
    refusals = Receipt(refused="no room"), Receipt(refused="out of memory")
    assert not differences(STATE, receipt_a=refusals[0], receipt_b=refusals[1])[0]


def test_ids_of_rows_slots_and_pages_are_never_compared() -> None:
    state = replace(
        with_req(req_pool_idx=2, slots=(1, 2, 3, 4)),
        pool=replace(POOL, free_pages=(5, 6, 7, 8), free_rows=(1,), cached=(CachedPath(tokens=(1, 2), slots=(1, 2)),)),
        relay=RelayView(rows={"a": replace(ROW, row=2)}, quiet=True),
    )
    assert not differences(state)[0]


@pytest.mark.parametrize(("ours", "theirs"), [(False, True), (True, False), (False, False)])
def test_relay_and_batch_lengths_wait_until_both_sides_are_drained(ours: bool, theirs: bool) -> None:
    found, system = differences(
        replace(with_relay(quiet=theirs, new_seq_len=99), batches=with_batch(seq_lens=(99,)).batches),
        with_relay(quiet=ours),
    )
    assert not found
    assert not [field for field in (*system.compared, *system.uncompared) if field.startswith("relay.")]
    assert "batch.seq_lens" not in system.compared


@pytest.mark.parametrize(
    ("state", "field"),
    [
        (with_relay(new_seq_len=None), "relay.new_seq_len"),
        (with_pool(cached=None), "pool.cached_slots"),
        (with_batch(seq_lens=None), "batch.seq_lens"),
        (replace(STATE, batches=()), "batch.forward_mode"),
        (replace(STATE, launches=()), "launch.mode"),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_field_that_one_side_can_not_show_is_uncompared_and_not_equal(
    state: Snapshot, field: str, swapped: bool
) -> None:
    found, system = differences(STATE, state) if swapped else differences(state)
    assert not found
    assert system.uncompared[field] == 1 and field not in system.compared
    assert lockstep.cell_table(system)[field] == (0, 1, 0)


def test_all_seeds_of_a_tree_are_compared_and_a_chain_has_none() -> None:
    found, system = differences(with_relay(topk_seeds=(7, 8)), with_relay(topk_seeds=(7, 9)))
    assert [violation.formula for violation in found] == ["a.relay.topk_seeds[a] == b.relay.topk_seeds[a]"]
    _, system = differences(with_relay(topk_seeds=(7, 8)), STATE)
    assert (system.compared["relay.topk_seeds"], system.uncompared["relay.topk_seeds"]) == (0, 1)
    _, system = differences(STATE)
    assert "relay.topk_seeds" not in system.uncompared


def test_a_side_without_a_relay_has_no_drained_moment() -> None:
    found, system = differences(replace(STATE, relay=None))
    assert not found and "relay.rids" not in system.compared


def test_one_field_is_one_violation_however_many_requests_differ() -> None:
    two = replace(STATE, reqs={"a": REQ, "b": replace(REQ, rid="b")})
    other = replace(two, reqs={rid: replace(req, kv_committed_len=9) for rid, req in two.reqs.items()})
    found, system = differences(other, two)
    assert [violation.formula for violation in found] == ["a.req.kv_committed_len[a] == b.req.kv_committed_len[a]"]
    assert system.compared["req.kv_committed_len"] == 2


def test_differences_are_taken_once() -> None:
    found, system = differences(with_req(kv_committed_len=5))
    assert found and not system.take_differences(4)


def test_nothing_is_excluded_today() -> None:
    assert EXCLUSIONS == ()


def test_an_exclusion_is_counted_and_names_its_situation() -> None:
    def when(config: EngineConfig, event: Event) -> bool:
        return config.overlap and isinstance(event, Idle)

    entry = Exclusion(field="waiting", when=when, reason="for this test", systems=("two", "o"))
    system = LockstepSystem(Scripted("one"), Scripted("two", replace(STATE, waiting=("a",))), [entry])
    system.reset(EngineConfig())
    system.apply(Idle())
    assert not system.take_differences(0) and system.excluded == {"waiting": 1} and system.compared["waiting"] == 0
    system.apply(Settle())
    assert system.take_differences(1) and system.compared["waiting"] == 1
    assert not entry.applies("one", "three")


def test_device_progress_goes_to_both() -> None:
    a, b = Scripted("one"), Scripted("two")
    system = LockstepSystem(a, b)
    system.reset(EngineConfig())
    system.apply(Publish())
    assert a.seen == b.seen == [Publish()]


def test_capabilities_are_what_both_engines_can_do_and_what_the_first_shows() -> None:
    a = Capability.SPECULATIVE | Capability.RADIX | Capability.RELAY_VIEW | Capability.LAZY_DEVICE
    b = Capability.SPECULATIVE | Capability.OVERLAP | Capability.CONTENT_VIEW
    system = LockstepSystem(Scripted("one", can=a), Scripted("two", can=b))
    wanted = Capability.SPECULATIVE | Capability.RELAY_VIEW | Capability.LAZY_DEVICE
    assert system.capabilities(EngineConfig()) == wanted


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (None, "IndexError", "only `two` failed: `two`: IndexError"),
        ("IndexError", None, "only `one` failed: `one`: IndexError"),
        ("A", "B", "both systems failed: `one`: A; `two`: B"),
    ],
)
def test_a_fault_says_which_system_failed(a: str | None, b: str | None, says: str) -> None:
    system = LockstepSystem(Scripted("one", fault=a), Scripted("two", fault=b))
    system.reset(EngineConfig())
    with pytest.raises(EngineFault) as caught:
        system.apply(Settle())
    assert str(caught.value) == says and caught.value.kind == "crash"


def test_closing_closes_both() -> None:
    a, b = Scripted("one"), Scripted("two")
    LockstepSystem(a, b).close()
    assert (a.closed, b.closed) == (1, 1)


def session(a: ToySystem, b: ToySystem, text: str) -> Session:
    run = Session(LockstepSystem(a, b), EngineConfig(), ORACLES)
    for event in parse_events(text):
        run.step(event)
    return run


TEXT = "submit(a,4,9) prefill(a) settle prepare verify(a=3) settle retract(a) idle"


def test_two_openings_of_one_toy_agree_in_a_session() -> None:
    run = session(ToySystem(), ToySystem(), TEXT)
    assert not run.violations and len(run.steps) == 8


def test_a_bug_on_either_side_ends_the_session_as_a_lockstep_violation() -> None:
    for a, b in ((ToySystem("long"), ToySystem()), (ToySystem(), ToySystem("long"))):
        run = session(a, b, TEXT)
        assert run.trace().steps[-1].event == Settle()
        assert "lockstep" in {violation.oracle for violation in run.violations}
        facts = " ".join(v.fact + v.counterfact for v in run.violations if v.oracle == "lockstep")
        assert "toy (1): " in facts and "toy (2): " in facts
