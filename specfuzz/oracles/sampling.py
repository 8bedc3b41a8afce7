"""Rules of sampling state that crosses rounds: what the penalties of a row have counted. Host clock."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Prepare
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import BatchView, LaunchView, ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import LEDGER_EVENTS, changed_batches, is_dead

HOLDS = Verdict.HOLDS


@oracle(
    "penalties-count-once",
    formula=(
        "every live row of a batch: its penalties have counted one token of its own per prepare since it was admitted, "
        "the last one that the host knew then"
    ),
    clock=Clock.HOST,
    owner=Owner.SAMPLER,
    scope=Scope.RUN,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch.cumulate_penalty_output_tokens; sglang #33643",
    twin="prepare",
)
def penalties_count_once(step: Step) -> Finding:
    """Upstream counts one token of an accepted run (declared as relaxed); never two, none, or another row's."""
    finding: Finding = None
    for batch in changed_batches(step):
        if batch.penalized is None:
            return Verdict.UNKNOWN
        clash = _wrong_rows(step, batch.rids, batch.penalized, f"the {batch.name} batch")
        if clash is None and type(step.event) is Prepare and batch.name == "prepared":
            clash = _stale(step, batch)
        if clash is not None:
            return clash
        finding = HOLDS
    return finding


@oracle(
    "forward-sees-its-penalties",
    formula="launch: the worker's sampling_info has a row per row of the batch, with what the live ones were counted",
    clock=Clock.HOST,
    owner=Owner.ISOLATION,
    scope=Scope.BATCH,
    needs=Capability.LAUNCH_VIEW,
    source="sglang 0.5.23 sampling/sampling_batch_info SamplingBatchInfo.copy_for_forward; sglang #7613",
    twin="launch",
)
def forward_sees_its_penalties(step: Step, launch: LaunchView) -> Finding:
    """A forward samples with the state of its own rows, whatever the scheduler filters and merges behind it."""
    if launch.penalized is None:
        return Verdict.UNKNOWN
    return _wrong_rows(step, launch.rids, launch.penalized, f"forward {launch.number}") or HOLDS


def _wrong_rows(step: Step, rids: tuple[str, ...], penalized: tuple[tuple[int, ...], ...], who: str) -> Clash | None:
    if len(penalized) != len(rids):
        return Clash(
            f"{len(penalized)} rows of penalties == {len(rids)} rows",
            f"{who} has the rows {', '.join(rids)}",
            f"its sampling_info has {len(penalized)}",
        )
    reqs = step.after.reqs
    for rid, counted in zip(rids, penalized, strict=True):
        req = reqs[rid]
        if is_dead(req):
            continue
        if len(counted) != req.decode_batch_idx:
            return Clash(
                f"penalties({rid}) counted {len(counted)} == {req.decode_batch_idx}",
                f"{rid} was prepared {req.decode_batch_idx} times since it was admitted",
                f"its penalties have counted {len(counted)} tokens in {who}",
                rid=rid,
            )
        for token in counted[:1] + counted[-1:]:  # rows move as a whole
            if token not in req.output_ids and token != _last_of_prompt(step, req):
                return Clash(
                    f"penalties({rid}) counted {token} in output_ids {req.output_ids}",
                    f"the host has never known {token} as a token of {rid}",
                    f"its penalties have counted it in {who}",
                    rid=rid,
                )
    return None


def _last_of_prompt(step: Step, req: ReqView) -> int:
    return step.ledger.requests[req.rid].text.token(req.prompt_len - 1)


def _stale(step: Step, batch: BatchView) -> Clash | None:
    for rid, counted in zip(batch.rids, batch.penalized or (), strict=True):
        req = step.after.reqs[rid]
        last = req.output_ids[-1] if req.output_ids else _last_of_prompt(step, req)
        if not is_dead(req) and counted[-1:] != (last,):
            return Clash(
                f"penalties({rid}) = {counted} ends with {last}",
                f"the last token that the host knows of {rid} is {last}",
                "its penalties have counted another one for this prepare",
                rid=rid,
            )
    return None
