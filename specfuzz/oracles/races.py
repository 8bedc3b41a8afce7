"""Rules on order: no two accesses to the same memory without a happens-before edge, split by who owes the edge.

A race counts as soon as nothing orders the two accesses, also when they happened to run in the right order.
"""

from __future__ import annotations

from collections.abc import Callable

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import RaceView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import DEVICE_EVENTS

HOLDS = Verdict.HOLDS
USE_AFTER_FREE = "use-after-free"
HOST_READ = "host-read-unsynchronised"
#: Buffers of the relay and of the row table, by SGLang's names.
RELAY_BUFFERS = frozenset(
    {
        "new_seq_lens_buf", "output_tokens_buf", "topk_p_buf", "topk_index_buf", "hidden_states_buf", "draft_probs_buf",
        "new_seq_lens_cpu_pinned",
    }
)  # fmt: skip
ROW_TABLE = "req_to_token"


def _first(step: Step, concerns: Callable[[RaceView], bool], rule: str) -> Finding:
    races = step.after.races
    if races:
        for race in races:
            if concerns(race):
                return _race(race, rule)
    elif races is None:
        return Verdict.UNKNOWN
    receipt = step.receipt
    if receipt.executed or receipt.launch is not None or receipt.settled is not None:
        return HOLDS
    return None  # nothing touched the device


def _race(race: RaceView, rule: str) -> Clash:
    where = race.buffer if race.row is None else f"{race.buffer}[{race.row}]"
    return Clash(
        f"{race.kind} on {where}: {race.first} [{race.first_stream}] and {race.second} [{race.second_stream}]",
        f"`{race.first}` on the {race.first_stream} stream and `{race.second}` "
        f"on the {race.second_stream} stream "
        f"touch {where}",
        rule,
    )


def is_lifetime_race(race: RaceView) -> bool:
    """Whether a tensor was freed under an operation that uses it."""
    return race.kind == USE_AFTER_FREE


def is_host_race(race: RaceView) -> bool:
    """Whether the host read what a stream still writes."""
    return race.kind == HOST_READ


def is_memory_race(race: RaceView) -> bool:
    """Whether the race is about any other memory: KV cells, batch tensors, results."""
    return race.kind not in (USE_AFTER_FREE, HOST_READ) and not is_relay_race(race) and not is_row_race(race)


def is_relay_race(race: RaceView) -> bool:
    """Whether the race is about a relay buffer and not about its lifetime."""
    return race.buffer in RELAY_BUFFERS and race.kind not in (USE_AFTER_FREE, HOST_READ)


def is_row_race(race: RaceView) -> bool:
    """Whether the race is about the row table and not about its lifetime."""
    return race.buffer.startswith(ROW_TABLE) and race.kind not in (USE_AFTER_FREE, HOST_READ)


@oracle(
    "tensors-outlive-their-forward",
    formula="free(tensor) happens after every operation that was launched with it",
    clock=Clock.DEVICE,
    owner=Owner.ISOLATION,
    scope=Scope.RUN,
    needs=Capability.RACE_CHECK,
    on=DEVICE_EVENTS,
    source="sglang 0.5.23 managers/scheduler Scheduler.record_batch_in_overlap",
    twin="work-pending",
)
def tensors_outlive_their_forward(step: Step) -> Finding:
    """The two-slot ring keeps a launch's tensors bound until the launch after the next."""
    return _first(step, is_lifetime_race, "the free is not ordered after the use: the ring let go too early")


@oracle(
    "relay-reads-are-fenced",
    formula="publish and stash happen before the reads of the round that follows",
    clock=Clock.RELAY,
    owner=Owner.FUTURE_MAP,
    scope=Scope.RUN,
    needs=Capability.RACE_CHECK,
    on=DEVICE_EVENTS,
    source="sglang 0.5.23 managers/overlap_utils FutureMap.resolve_seq_lens_cpu; sglang #30435",
    twin="prepare-behind-the-device",
)
def relay_reads_are_fenced(step: Step) -> Finding:
    """A relay row is read behind the event that its publish recorded."""
    return _first(step, is_relay_race, "no event orders them: a fence of the relay is missing")


@oracle(
    "row-writes-wait-for-readers",
    formula="a write to a req_to_token row happens after every launched forward that reads the row",
    clock=Clock.DEVICE,
    owner=Owner.SCHEDULER,
    scope=Scope.RUN,
    needs=Capability.RACE_CHECK,
    on=DEVICE_EVENTS,
    source="sglang 0.5.23 managers/scheduler Scheduler.event_loop_overlap; sglang #18744",
    twin="work-pending",
)
def row_writes_wait_for_readers(step: Step) -> Finding:
    """The schedule stream waits for the forward's reads before it rewrites rows (write after read)."""
    return _first(step, is_row_race, "no event orders them: the write-after-read barrier is missing")


@oracle(
    "results-are-waited-for",
    formula="the host reads a result only behind its copy_done",
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.RUN,
    needs=Capability.RACE_CHECK,
    on=DEVICE_EVENTS,
    source="sglang 0.5.23 managers/scheduler_components/batch_result_processor process_batch_result_decode",
    twin="result-settles",
)
def results_are_waited_for(step: Step) -> Finding:
    """Host code that reads what a stream still writes reads whatever the memory held."""
    return _first(step, is_host_race, "the host did not wait for the event between them")


@oracle(
    "device-memory-is-ordered",
    formula="any two accesses to the same row, one of them a write, are ordered by happens-before",
    clock=Clock.DEVICE,
    owner=Owner.KERNEL,
    scope=Scope.RUN,
    needs=Capability.RACE_CHECK,
    on=DEVICE_EVENTS,
    source="sglang 0.5.23 managers/scheduler Scheduler.run_batch; sglang #26376",
    twin="work-pending",
)
def device_memory_is_ordered(step: Step) -> Finding:
    """All other memory (KV cells, batch tensors, results) is touched in one order only."""
    return _first(step, is_memory_race, "no event orders them")
