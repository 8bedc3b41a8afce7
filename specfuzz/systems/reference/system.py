"""The reference engine behind the port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from specfuzz import __version__
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import (
    Abort,
    Advance,
    Event,
    Evict,
    Finish,
    Idle,
    Mix,
    Prefill,
    Prepare,
    Publish,
    Retract,
    Settle,
    Submit,
    Verify,
)
from specfuzz.core.language import prompt_tokens
from specfuzz.core.receipt import NOTHING, Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.errors import ConfigError, EngineFault
from specfuzz.gpu import Device, open_device
from specfuzz.reference.algorithms import ALGORITHMS
from specfuzz.reference.grammar import Grammar
from specfuzz.reference.req import Req
from specfuzz.reference.result_processor import Settled
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.systems.reference.launches import LaunchWatcher
from specfuzz.systems.reference.views import Viewer
from specfuzz.systems.reference.writes import WriteRecorder

#: Changes one freshly made engine; how a mutant gets in.
Patch = Callable[[Scheduler], None]

_ALWAYS = (
    Capability.RELAY_VIEW
    | Capability.DEVICE_VIEW
    | Capability.LAUNCH_VIEW
    | Capability.CONTENT_VIEW
    | Capability.TREE_VIEW
    | Capability.WRITE_RECORDS
    | Capability.METRICS_VIEW
)
#: What an algorithm may be able to do and a configuration has to ask for.
_BY_CONFIG = Capability.MIXED_CHUNK | Capability.TREE | Capability.GRAMMAR


class ReferenceSystem:
    """Drives one Scheduler; each event maps to one of its steps."""

    version = __version__

    def __init__(
        self, *, name: str = "reference", device: str = "cpu", patch: Patch | None = None, check_races: bool = True
    ) -> None:
        """device: "cpu" or "cuda". patch: applied to every fresh engine before it is watched."""
        self.name = name
        self._device_kind = device
        self._patch = patch
        self.checks_races = check_races
        torch.set_num_threads(1)  # one result for one seed, and no fight over two cores for tiny tensors

    # ------------------------------------------------------------------ port
    def capabilities(self, config: EngineConfig) -> Capability:
        """Abilities of the algorithm, the configuration and this adapter; ConfigError for what they can't."""
        algorithm = ALGORITHMS.get(config.algorithm)
        tree = config.speculative and config.topk > 1
        if tree and Capability.TREE not in algorithm.capabilities:
            raise ConfigError(
                f"`topk`={config.topk} does not fit `algorithm`={config.algorithm}: its worker drafts chains only. "
                "Set topk=1."
            )
        if config.mixed_chunk and Capability.MIXED_CHUNK not in algorithm.capabilities:
            able = [name for name in ALGORITHMS.names() if Capability.MIXED_CHUNK in ALGORITHMS.get(name).capabilities]
            raise ConfigError(
                f"`mixed_chunk`=True does not fit `algorithm`={config.algorithm}: its worker can't extend running rows "
                f"beside a prefill. Set mixed_chunk=False, or take one of {', '.join(able)}."
            )
        if config.grammar and Capability.GRAMMAR not in algorithm.capabilities:
            raise ConfigError(
                f"`grammar`=True does not fit `algorithm`={config.algorithm}: its worker applies no vocab mask. "
                "Set grammar=False."
            )
        found = algorithm.capabilities & ~_BY_CONFIG | _ALWAYS
        for present, flag in (
            (tree, Capability.TREE),
            (config.overlap, Capability.OVERLAP),
            (config.radix, Capability.RADIX),
            (config.page_size > 1, Capability.PAGED),
            (config.mixed_chunk, Capability.MIXED_CHUNK),
            (config.chunked_prefill, Capability.CHUNKED_PREFILL),
            (config.grammar, Capability.GRAMMAR),
            (self._device_kind == "cpu", Capability.LAZY_DEVICE),
            (self.checks_races, Capability.RACE_CHECK),
        ):
            if present:
                found |= flag
        return found

    def reset(self, config: EngineConfig) -> None:
        """A fresh engine on a fresh device."""
        self.capabilities(config)
        self._release()
        self.device: Device = open_device(self._device_kind, check_races=self.checks_races)
        self.config = config
        self.scheduler = Scheduler(config, self.device)
        if self._patch is not None:
            self._patch(self.scheduler)
        self.watcher = LaunchWatcher(self.scheduler)
        self.reqs: dict[str, Req] = {}
        self.gone: set[str] = set()  # answered without a finish reason of their own
        self.prepared: ScheduleBatch | None = None
        self._writes = WriteRecorder()
        self._idle = False
        self._viewer = Viewer(self)

    def apply(self, event: Event) -> Receipt:
        """One step of the engine; anything that it raises becomes an EngineFault."""
        self._idle = type(event) is Idle
        ran, evicted = self.device.progress, self.scheduler.tree_cache.evicted_tokens
        try:
            fields = _STEPS[type(event)](self, event)
        except Exception as error:
            raise EngineFault(f"{type(error).__name__}: {error}", where=_where(error)) from error
        if self.scheduler.answered:
            aborted = tuple([(rid, "abort", None) for rid in _rids_of(self.scheduler.answered)])
            fields["finished"] = aborted + fields.get("finished", ())
            self.scheduler.answered.clear()
        executed = self.device.progress - ran
        evicted = self.scheduler.tree_cache.evicted_tokens - evicted
        if not fields and not executed and not evicted:
            return NOTHING
        return Receipt(**fields, executed=executed, evicted=evicted)

    def snapshot(self) -> Snapshot:
        """The state now; peeks only."""
        return self._viewer.snapshot(self._writes.take(), idle=self._idle)

    def close(self) -> None:
        """Free the last engine; idempotent."""
        self._release()

    def _release(self) -> None:
        """Cut the reference cycles of the engine before, so that it is freed at once, without the garbage collector."""
        watcher = vars(self).pop("watcher", None)
        if watcher is not None:
            watcher.release()
            self.device.close()

    # ------------------------------------------------------------------ steps
    def _submit(self, event: Submit) -> dict[str, Any]:
        prompt = prompt_tokens(event.rid, event.prompt_len, event.shared_len)
        grammar = Grammar(event.grammar) if event.grammar else None
        req = self.scheduler.add_request(event.rid, prompt, event.max_new, grammar)
        self._writes.watch(req)
        self.reqs[event.rid] = req
        return {}

    def _prefill(self, event: Prefill | Mix) -> dict[str, Any]:
        scheduler, req = self.scheduler, self.reqs[event.rid]
        scheduler.merge_last_batch()
        refused = scheduler.refusal(req, event.n)
        if refused is not None:
            return {"refused": refused}
        batch = scheduler.admit(req, event.n)
        admitted = ((req.rid, req.prefix_len, req.extend_end - req.prefix_len),)
        dropped = scheduler.mix(batch) if type(event) is Mix else []
        return {"admitted": admitted, "dropped": _rids_of(dropped), **self._launch(batch, {})}

    def _prepare(self, event: Prepare) -> dict[str, Any]:
        scheduler = self.scheduler
        scheduler.merge_last_batch()
        outcome = scheduler.update_running_batch()
        self.prepared = outcome.batch
        aborted = _rids_of(outcome.retraction.aborted)
        self.gone.update(aborted)
        found: dict[str, Any] = {
            "dropped": _rids_of(outcome.dropped),
            "retracted": _rids_of(outcome.retraction.retracted),
            "finished": tuple((rid, "abort", None) for rid in aborted),
            "skipped": outcome.skipped,
        }
        if outcome.batch is not None:
            found |= {"mode": outcome.batch.forward_mode.value, "rows": _rids_of(outcome.batch.reqs)}
        return found

    def _verify(self, event: Verify) -> dict[str, Any]:
        batch, self.prepared = self.prepared, None
        assert batch is not None
        steps = self.config.spec_steps if self.config.speculative else 0
        # Accepting `run` tokens means that proposal number `run` is the first wrong one.
        flips = {req.rid: 1 for req in batch.reqs} | {
            rid: max(run, 1) if run <= steps else 0 for rid, run in event.accept
        }
        return self._launch(batch, flips)

    def _launch(self, batch: ScheduleBatch, flips: dict[str, int]) -> dict[str, Any]:
        self.scheduler.model_runner.draft_flip_at = flips
        self.scheduler.launch(batch)
        launched = self.watcher.open[-1]
        return {"launch": launched.number, "mode": launched.mode, "rows": launched.rids}

    def _publish(self, event: Publish) -> dict[str, Any]:
        record = self.watcher.oldest_unpublished()
        if record is not None and record.published is not None:
            self.device.run_until(record.published)
        return {}

    def _advance(self, event: Advance) -> dict[str, Any]:
        self.device.advance(event.stream, event.count)
        return {}

    def _settle(self, event: Settle) -> dict[str, Any]:
        queue = self.watcher.queue()
        settled = self.scheduler.settle()
        return _settled_fields([settled], self.watcher.settled(queue))

    def _idle_all(self, event: Idle) -> dict[str, Any]:
        self.scheduler.process_pending_chunked_abort()
        outcomes, number = [], None
        while self.scheduler.result_queue:
            queue = self.watcher.queue()
            outcomes.append(self.scheduler.settle())
            number = self.watcher.settled(queue)
        self.device.drain()
        return _settled_fields(outcomes, number)

    def _finish(self, event: Finish) -> dict[str, Any]:
        self.reqs[event.rid].stop_at = event.at
        return {}

    def _abort(self, event: Abort) -> dict[str, Any]:
        req = self.reqs[event.rid]
        if self.scheduler.abort(req):
            self.gone.add(req.rid)
            return {"finished": ((req.rid, "abort", None),)}
        return {}

    def _retract(self, event: Retract) -> dict[str, Any]:
        self.scheduler.merge_last_batch()
        if not self.scheduler.retract(self.reqs[event.rid]):
            return {"refused": "not in the running batch"}
        return {"retracted": (event.rid,)}

    def _evict(self, event: Evict) -> dict[str, Any]:
        self.scheduler.tree_cache.evict(event.n)
        return {}


def _where(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return f"{type(error).__name__} in {frame.tb_frame.f_code.co_name}" if frame is not None else type(error).__name__


def _rids_of(reqs: list[Req]) -> tuple[str, ...]:
    return tuple([req.rid for req in reqs])


def _settled_fields(outcomes: list[Settled], number: int | None) -> dict[str, Any]:
    emitted: dict[str, tuple[int, ...]] = {}
    finished: list[tuple[str, str, int | None]] = []
    for settled in outcomes:
        for req, tokens in settled.emitted:
            emitted[req.rid] = emitted.get(req.rid, ()) + tuple(tokens)
        finished += [(req.rid, req.finished_reason or "", req.finished_len) for req in settled.finished]
    return {"settled": number, "emitted": tuple(emitted.items()), "finished": tuple(finished)}


_STEPS: dict[type[Event], Callable[[Any, Any], dict[str, Any]]] = {
    Submit: ReferenceSystem._submit,
    Prefill: ReferenceSystem._prefill,
    Mix: ReferenceSystem._prefill,
    Prepare: ReferenceSystem._prepare,
    Verify: ReferenceSystem._verify,
    Publish: ReferenceSystem._publish,
    Advance: ReferenceSystem._advance,
    Settle: ReferenceSystem._settle,
    Idle: ReferenceSystem._idle_all,
    Finish: ReferenceSystem._finish,
    Abort: ReferenceSystem._abort,
    Retract: ReferenceSystem._retract,
    Evict: ReferenceSystem._evict,
}
