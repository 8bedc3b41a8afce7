"""Clauses about capabilities: what is claimed can be seen in some run, and what isn't claimed is absent everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from specfuzz.conformance.clauses import Answer, Clause, Evidence, broken, clause, holds, place, unjudged
from specfuzz.conformance.runs import Moment
from specfuzz.conformance.walks import SHORT_CHUNK, typical_requests
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Settle
from specfuzz.core.legality import Ledger

#: Whether this moment shows the ability or the view, given the ledger after it.
Shows = Callable[[Moment, Ledger, EngineConfig], bool]


def _speculative(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """a settled verify emits more than one token"""
    return isinstance(moment.event, Settle) and any(len(tokens) > 1 for _rid, tokens in moment.receipt.emitted)


def _draft_kv(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """a cell of the draft KV is written"""
    device = moment.after.device
    return device is not None and device.draft_v1 is not None and any(device.draft_v1)


def _draft_extras(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """a decode gets a proposal and a hidden state from the round before"""
    return any(view.entry is not None and view.entry.topk_index and view.entry.hidden for view in moment.after.launches)


def _tree(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """a verify with more than one branch emits more than one token"""
    return config.topk > 1 and _speculative(moment, ledger, config)


def _overlap(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """a forward is launched while the result before it is unsettled"""
    return moment.receipt.launch is not None and len(ledger.in_flight) > 1


def _mixed_chunk(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """a MIXED forward is launched"""
    return moment.receipt.mode == "MIXED" and len(moment.receipt.rows) > 1


def _chunked_prefill(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """an extend ends inside of a prompt"""
    return any(
        prefix + extend < moment.after.reqs[rid].prompt_len for rid, prefix, extend in moment.receipt.admitted
    )  # fmt: skip


def _radix(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """a request is admitted with a prefix that is cached already"""
    return any(
        prefix and moment.before.reqs[rid].req_pool_idx is None for rid, prefix, _extend in moment.receipt.admitted
    )


def _paged(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """a request holds several pages, each of them in one piece"""
    size = moment.after.pool.page_size
    return size == config.page_size > 1 and any(
        len(req.slots) > size
        and all(slot == req.slots[at - at % size] + at % size for at, slot in enumerate(req.slots))
        for req in moment.after.reqs.values()
    )


def _lazy_device(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """device work is pending behind a host event"""
    return moment.after.device is not None and moment.after.device.pending > 0


def _relay_view(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """a row of the relay holds a length or a token"""
    rows = moment.after.relay.rows.values() if moment.after.relay is not None else ()
    return any(row.new_seq_len is not None or row.output_token is not None for row in rows)


def _device_view(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """the device's row of a request names its slots"""
    device = moment.after.device
    return device is not None and any(
        req.slots and device.rows.get(rid) == req.slots for rid, req in moment.after.reqs.items()
    )


def _launch_view(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """a settled launch shows what its worker saw at entry and decided at exit"""
    numbers = {launched.number for launched in ledger.settled}
    return any(
        view.number in numbers and view.settled and view.entry is not None and view.exit is not None
        for view in moment.after.launches
    )


def _content_view(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """the KV cells of a request hold what plain decoding would have written"""
    device = moment.after.device
    if device is None or not device.target_v1:
        return False
    for rid, req in moment.after.reqs.items():
        cells = [device.target_v1[slot] for slot in req.slots[: req.kv_committed_len]]
        text = ledger.requests[rid].text
        if cells and cells == [text.target_cell(at)[0] for at in range(len(cells))]:
            return True
    return False


def _tree_view(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """the tree can be walked, and where it caches something it has a path"""
    cached = moment.after.pool.cached
    return cached is not None and (bool(cached) or not config.radix)


def _write_records(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """somebody's write of kv_committed_len is recorded"""
    return any(write.field == "kv_committed_len" for write in moment.after.writes or ())


def _race_check(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """there is a list of races, empty or not, behind a launch"""
    return moment.after.races is not None and moment.receipt.launch is not None


def _metrics_view(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """the global acceptance counts have counted a round"""
    return moment.after.metrics is not None and moment.after.metrics.spec_num_forward_ct > 0


def _grammar(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """the FSM of a constrained request accepts a token"""
    return any(req.grammar_accepted for req in moment.after.reqs.values())


def _grammar_overlap(moment: Moment, ledger: Ledger, config: EngineConfig) -> bool:
    """a forward lets the FSMs of its rows accept a result that is still queued"""
    return any(view.grammar_advanced for view in moment.after.launches)


SHOWN_BY: Mapping[Capability, Shows] = {
    Capability.SPECULATIVE: _speculative, Capability.DRAFT_KV: _draft_kv, Capability.DRAFT_EXTRAS: _draft_extras,
    Capability.TREE: _tree, Capability.OVERLAP: _overlap, Capability.MIXED_CHUNK: _mixed_chunk,
    Capability.CHUNKED_PREFILL: _chunked_prefill, Capability.RADIX: _radix, Capability.PAGED: _paged,
    Capability.LAZY_DEVICE: _lazy_device, Capability.RELAY_VIEW: _relay_view, Capability.DEVICE_VIEW: _device_view,
    Capability.LAUNCH_VIEW: _launch_view, Capability.CONTENT_VIEW: _content_view, Capability.TREE_VIEW: _tree_view,
    Capability.WRITE_RECORDS: _write_records, Capability.RACE_CHECK: _race_check,
    Capability.METRICS_VIEW: _metrics_view, Capability.GRAMMAR: _grammar, Capability.GRAMMAR_OVERLAP: _grammar_overlap,
}  # fmt: skip

#: What a configuration needs besides, or the sign of a flag can't be seen in it: other views, and for the relay an
#: algorithm that uses it (without overlap, draft state crosses rounds as tensors).
_SEEN_THROUGH = {
    Capability.RELAY_VIEW: Capability.OVERLAP,
    Capability.DRAFT_KV: Capability.DEVICE_VIEW | Capability.CONTENT_VIEW,
    Capability.DRAFT_EXTRAS: Capability.LAUNCH_VIEW,
    Capability.LAZY_DEVICE: Capability.DEVICE_VIEW,
    Capability.CONTENT_VIEW: Capability.DEVICE_VIEW,
    Capability.METRICS_VIEW: Capability.SPECULATIVE,
    Capability.GRAMMAR_OVERLAP: Capability.GRAMMAR | Capability.OVERLAP | Capability.LAUNCH_VIEW,
}


def _typical_len(config: EngineConfig) -> int:
    return typical_requests(config)[0][0].prompt_len


def _has_full_pages(config: EngineConfig) -> bool:
    """Whether a typical request is longer than a page; only whole pages are cached, and a single one shows nothing."""
    return _typical_len(config) > config.page_size


#: Whether an ability can show at all under a configuration that claims it.
_HAS_ROOM: Mapping[Capability, Callable[[EngineConfig], bool]] = {
    Capability.RADIX: _has_full_pages,
    Capability.PAGED: _has_full_pages,
    Capability.TREE_VIEW: _has_full_pages,
    Capability.MIXED_CHUNK: lambda config: config.max_reqs > 1,
    Capability.CHUNKED_PREFILL: lambda config: _typical_len(config) > max(config.page_size, SHORT_CHUNK),
}


def _claim(flag: Capability, shows: Shows) -> Clause:
    sign = (shows.__doc__ or "").strip()

    def judge(evidence: Evidence) -> Answer:
        if not evidence.claiming(flag):
            return unjudged(f"no configuration that was run claims {flag.name}")
        through = _SEEN_THROUGH.get(flag, Capability.NONE)
        runs = [run for run in evidence.claiming(flag | through) if _HAS_ROOM.get(flag, bool)(run.config)]
        if not runs:
            names = " and ".join(one.name or "" for one in Capability if one in through)
            besides = f"together with {names}" if names else "with more rows or a context of several pages"
            return unjudged(f"{flag.name} is claimed, and would show only {besides}")
        for run in runs:
            for index, (moment, ledger) in enumerate(run.steps()):
                if shows(moment, ledger, run.config):
                    return holds(f"{place(run, index)}: {sign}")
        stopped = next((run.stopped for run in runs if run.stopped is not None), None)
        if stopped is not None:
            return unjudged(f"not seen before the runs ended: {stopped}")
        events = sum(len(run.moments) for run in runs)
        return broken(f"{flag.name} is claimed, and in {events} events of {len(runs)} runs never once {sign}")

    name = f"claimed-{(flag.name or '').lower().replace('_', '-')}-is-real"
    return Clause(name=name, rule=f"Where {flag.name} is claimed, {sign}.", judge=judge)


#: Of each view: what of a snapshot shows that it is there.
_PRESENT: Mapping[Capability, tuple[str, Callable[[Moment], bool]]] = {
    Capability.RELAY_VIEW: ("relay", lambda moment: moment.after.relay is not None),
    Capability.DEVICE_VIEW: ("device", lambda moment: moment.after.device is not None),
    Capability.LAUNCH_VIEW: ("launches", lambda moment: bool(moment.after.launches)),
    Capability.CONTENT_VIEW: (
        "device.target_v1", lambda moment: moment.after.device is not None and bool(moment.after.device.target_v1),
    ),
    Capability.TREE_VIEW: ("pool.cached", lambda moment: moment.after.pool.cached is not None),
    Capability.WRITE_RECORDS: ("writes", lambda moment: moment.after.writes is not None),
    Capability.RACE_CHECK: ("races", lambda moment: moment.after.races is not None),
    Capability.METRICS_VIEW: ("metrics", lambda moment: moment.after.metrics is not None),
    Capability.LAZY_DEVICE: (
        "device.pending", lambda moment: moment.after.device is not None and moment.after.device.pending > 0,
    ),
}  # fmt: skip
#: Views that are there in every snapshot, or nowhere.
_STEADY = tuple(flag for flag in _PRESENT if flag not in (Capability.LAUNCH_VIEW, Capability.LAZY_DEVICE))


@clause("unclaimed-views-are-absent")
def unclaimed_views_are_absent(evidence: Evidence) -> Answer:
    """A view that isn't claimed is None (or empty) in every snapshot: an oracle must not take it for the truth."""
    absent: set[str] = set()
    for run in evidence.runs:
        for flag, (name, present) in _PRESENT.items():
            if flag in run.capabilities:
                continue
            absent.add(flag.name or "")
            for index, moment in enumerate(run.moments):
                if present(moment):
                    return broken(f"{place(run, index)}: `{name}` is there, but {flag.name} is not claimed")
    return holds(f"absent: {', '.join(sorted(absent))}") if absent else unjudged("every view is claimed everywhere")


@clause("claimed-views-are-always-there")
def claimed_views_are_always_there(evidence: Evidence) -> Answer:
    """A claimed view is there in every snapshot, also of an engine without any request."""
    there: set[str] = set()
    for run in evidence.runs:
        for flag in _STEADY:
            if flag not in run.capabilities:
                continue
            there.add(flag.name or "")
            name, present = _PRESENT[flag]
            for index, moment in enumerate(run.moments):
                if not present(moment):
                    return broken(f"{place(run, index)}: {flag.name} is claimed, but `{name}` is missing")
    return holds(f"there: {', '.join(sorted(there))}") if there else unjudged("no view is claimed")


CLAUSES = (
    claimed_views_are_always_there, unclaimed_views_are_absent,
    *(_claim(flag, shows) for flag, shows in SHOWN_BY.items()),
)  # fmt: skip
