"""Rules of the forward isolation: what a worker may leave behind on the batch, and how long its tensors must live."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import LaunchView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import LEDGER_EVENTS

HOLDS = Verdict.HOLDS
#: Fields that the scheduler re-commits on purpose after the worker has returned.
RECOMMITTED = frozenset({"spec_info", "input_ids"})
RECOMMITTED_SYNC = RECOMMITTED | {"seq_lens", "seq_lens_cpu", "seq_lens_sum"}
#: The modes that a scheduler may see; TARGET_VERIFY and DRAFT_EXTEND_V2 live inside the worker.
OUTER_MODES = frozenset({"EXTEND", "DECODE", "MIXED", "IDLE"})


@oracle(
    "bindings-are-restored",
    formula="fields rebound after the exit are in {input_ids, spec_info} (sync: and seq_lens, its mirror and sum)",
    clock=Clock.HOST,
    owner=Owner.ISOLATION,
    scope=Scope.BATCH,
    needs=Capability.LAUNCH_VIEW,
    source="sglang 0.5.23 managers/scheduler Scheduler._forward_isolation",
    twin="launch",
)
def bindings_are_restored(step: Step, launch: LaunchView) -> Finding:
    """Whatever the worker rebound on the batch is undone, except what is committed again on purpose."""
    if launch.rebound is None:
        return Verdict.UNKNOWN
    if step.config.speculative:
        leaked = set(launch.rebound) - (RECOMMITTED if step.config.overlap else RECOMMITTED_SYNC)
    else:
        leaked = set(launch.rebound) & {"sampling_info", "forward_mode"}  # plain isolation covers no more
    if not leaked:
        return HOLDS
    names = ", ".join(sorted(leaked))
    return Clash(
        f"rebound {launch.rebound} has {names}",
        f"after forward {launch.number} the batch binds another {names} than before",
        "the isolation gives back every binding that the worker replaced",
    )


@oracle(
    "draft-input-is-committed",
    formula="speculative launch: spec_info is the worker's next_draft_input; sync decode: seq_lens is new_seq_lens",
    clock=Clock.HOST,
    owner=Owner.ISOLATION,
    scope=Scope.BATCH,
    needs=Capability.LAUNCH_VIEW | Capability.SPECULATIVE,
    source="sglang 0.5.23 managers/scheduler Scheduler.run_batch",
    twin="launch",
)
def draft_input_is_committed(step: Step, launch: LaunchView) -> Finding:
    """What the next round needs survives the isolation because it is committed again behind it."""
    if launch.rebound is None:
        return Verdict.UNKNOWN
    needed = {"spec_info"}
    if not step.config.overlap and launch.mode == "DECODE":
        needed.add("seq_lens")
    missing = needed - set(launch.rebound)
    if not missing:
        return HOLDS
    names = ", ".join(sorted(missing))
    return Clash(
        f"rebound {launch.rebound} lacks {names}",
        f"forward {launch.number} decided a new {names}",
        f"the batch still binds the old {names}",
    )


@oracle(
    "sampling-info-is-copied",
    formula="speculation or overlap: the worker sees a sampling_info of its own",
    clock=Clock.HOST,
    owner=Owner.ISOLATION,
    scope=Scope.BATCH,
    needs=Capability.LAUNCH_VIEW,
    source="sglang 0.5.23 managers/scheduler Scheduler._forward_isolation; sglang #7613",
    twin="launch",
)
def sampling_info_is_copied(step: Step, launch: LaunchView) -> Finding:
    """The next filter must not change the sampling state of a forward that runs."""
    if not step.config.speculative and not step.config.overlap:
        return None
    if launch.sampling_copied is None:
        return Verdict.UNKNOWN
    if launch.sampling_copied:
        return HOLDS
    return Clash(
        "sampling_info(worker) is not sampling_info(batch)",
        f"forward {launch.number} of {launch.rids} was launched",
        "its worker was given the very sampling_info that the scheduler goes on to change",
    )


@oracle(
    "mode-is-restored",
    formula="forward_mode after the exit == the mode that was launched, and is none of the worker's own",
    clock=Clock.HOST,
    owner=Owner.ISOLATION,
    scope=Scope.BATCH,
    needs=Capability.LAUNCH_VIEW,
    source="sglang 0.5.23 managers/scheduler Scheduler._forward_isolation",
    twin="launch",
)
def mode_is_restored(step: Step, launch: LaunchView) -> Finding:
    """A leaked TARGET_VERIFY makes the scheduler merge the batch a second time."""
    if launch.mode_after is None:
        return Verdict.UNKNOWN
    if launch.mode_after == launch.mode and launch.mode in OUTER_MODES:
        return HOLDS
    return Clash(
        f"{launch.mode_after} == {launch.mode}",
        f"forward {launch.number} was launched as {launch.mode}",
        f"the scheduler finds the batch in mode {launch.mode_after}",
    )


@oracle(
    "no-write-through-the-isolation",
    formula="tensors bound before the entry keep their values while the forward is queued",
    clock=Clock.DEVICE,
    owner=Owner.ISOLATION,
    scope=Scope.RUN,
    needs=Capability.LAUNCH_VIEW,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 managers/schedule_batch ScheduleBatch.copy; sglang #26376",
    twin="launch",
)
def no_write_through_the_isolation(step: Step) -> Finding:
    """Isolation restores bindings only, so a write in place would reach the scheduler's own tensors."""
    finding: Finding = None
    for launch in step.after.launches:
        if launch.held_changed is None:
            if launch.exit_now:
                finding = finding or Verdict.UNKNOWN
        elif launch.held_changed:
            names = ", ".join(launch.held_changed)
            return Clash(
                f"values of {names} unchanged since the entry of forward {launch.number}",
                f"{names} were bound when forward {launch.number} entered its worker",
                f"somebody has written {names} in place since then",
            )
        else:
            finding = HOLDS
    return finding
