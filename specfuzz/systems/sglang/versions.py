"""Every name of SGLang that this adapter leans on, in one place, checked once when the engine is loaded.

Nothing else in the repository imports sglang. The adapter is written against 0.5.23; on any other version a name that
moved is reported as one clear sentence that says what it was needed for, before the first event runs.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from specfuzz.errors import MissingPart
from specfuzz.systems.sglang import stubs

#: The release that the adapter was written for and that `specfuzz systems install sglang` builds.
PINNED = "0.5.23"
#: Python versions that the pinned release has wheels for (manylinux_2_34, compiled parts per version).
PYTHONS = ((3, 11), (3, 12), (3, 13))

#: Settings that sglang and torch read at import. CLIP_MAX_NEW_TOKENS_ESTIMATION 0: `PrefillAdder` then admits whatever
#: the pool holds now, without its guess of how long the others will still run; pressure comes from the trace.
ENVIRONMENT = {
    "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "0",
    "TORCHDYNAMO_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
}

_SRT = "sglang.srt."

#: attribute of `Engine` -> (module below sglang.srt, name there, what the adapter needs it for)
NAMES: dict[str, tuple[str, str, str]] = {
    "Scheduler": ("managers.scheduler", "Scheduler", "run_batch and update_running_batch"),
    "ScheduleBatch": ("managers.schedule_batch", "ScheduleBatch", "building and merging batches"),
    "Req": ("managers.schedule_batch", "Req", "requests"),
    "ReqKvInfo": ("managers.schedule_batch", "ReqKvInfo", "the host KV ledger"),
    "FINISH_ABORT": ("managers.schedule_batch", "FINISH_ABORT", "finish reasons"),
    "FINISH_LENGTH": ("managers.schedule_batch", "FINISH_LENGTH", "finish reasons"),
    "FINISH_MATCHED_TOKEN": ("managers.schedule_batch", "FINISH_MATCHED_TOKEN", "finish reasons"),
    "PrefillAdder": ("managers.schedule_policy", "PrefillAdder", "admission"),
    "AddReqResult": ("managers.schedule_policy", "AddReqResult", "admission"),
    "GenerationBatchResult": ("managers.utils", "GenerationBatchResult", "what a worker returns"),
    "AbortReq": ("managers.io_struct", "AbortReq", "aborts"),
    "ResultProcessor": (
        "managers.scheduler_components.batch_result_processor",
        "SchedulerBatchResultProcessor",
        "processing results",
    ),
    "NewTokenRatioTracker": (
        "managers.scheduler_components.new_token_ratio_tracker",
        "NewTokenRatioTracker",
        "admission and retraction",
    ),
    "MetricsReporter": (
        "managers.scheduler_components.metrics_reporter",
        "SchedulerMetricsReporter",
        "the global acceptance counts",
    ),
    "FutureMap": ("managers.overlap_utils", "FutureMap", "the relay"),
    "TokenAllocator": ("mem_cache.allocator.token", "TokenToKVPoolAllocator", "slots at page size 1"),
    "PagedAllocator": ("mem_cache.allocator.paged", "PagedTokenToKVPoolAllocator", "slots at larger page sizes"),
    "CacheInitParams": ("mem_cache.cache_init_params", "CacheInitParams", "building the prefix tree"),
    "EvictParams": ("mem_cache.base_prefix_cache", "EvictParams", "eviction"),
    "RadixCache": ("mem_cache.radix_cache", "RadixCache", "the prefix tree"),
    "ReqToTokenPool": ("mem_cache.memory_pool", "ReqToTokenPool", "rows"),
    "ForwardMode": ("model_executor.forward_batch_info", "ForwardMode", "forward modes"),
    "SamplingParams": ("sampling.sampling_params", "SamplingParams", "stop and length rules"),
    "EagleDraftInput": ("speculative.eagle_info", "EagleDraftInput", "what EAGLE relays between rounds"),
    "SpeculativeAlgorithm": ("speculative.spec_info", "SpeculativeAlgorithm", "algorithm predicates"),
    "DisaggregationMode": ("disaggregation.utils", "DisaggregationMode", "the scheduler's mode"),
    "ServerArgs": ("server_args", "ServerArgs", "configuration"),
    "SpawnRanks": ("runtime_context", "SpawnRanks", "configuration"),
    "publish_config": ("runtime_context", "publish", "configuration"),
    "reset_context": ("runtime_context", "reset_context", "configuration"),
    "reserve_per_decode": ("mem_cache.allocation_sizing", "get_alloc_reserve_per_decode", "the decode reserve"),
    "extra_context_len": ("mem_cache.allocation_sizing", "get_req_to_token_extra_context_len", "the row width"),
    "release_kv_cache": ("mem_cache.common", "release_kv_cache", "the release path"),
    "BatchedPenalizer": ("sampling.penaltylib.orchestrator", "_BatchedPenalizer", "penalties"),
    "SamplingBatchInfo": ("sampling.sampling_batch_info", "SamplingBatchInfo", "penalties"),
    "BaseGrammarObject": ("constrained.base_grammar_backend", "BaseGrammarObject", "constrained requests"),
    "GrammarTree": ("speculative.spec_utils", "GrammarTree", "the vocab masks of a verify"),
    "build_grammar_vocab_mask": ("speculative.spec_utils", "build_grammar_vocab_mask", "the vocab masks of a verify"),
    "prefill_tail_tokens": ("speculative.eagle_utils", "_eagle_prefill_tail_tokens", "the token behind a middle chunk"),
}

#: attribute of `Engine` -> module below sglang.srt in which the adapter (or a planted bug) rebinds a global
MODULES: dict[str, str] = {
    "schedule_batch": "managers.schedule_batch",
    "overlap_utils": "managers.overlap_utils",
    "result_processor": "managers.scheduler_components.batch_result_processor",
    "allocation": "mem_cache.allocation",
    "allocation_sizing": "mem_cache.allocation_sizing",
    "common": "mem_cache.common",
    "eagle_utils": "speculative.eagle_utils",
    "radix_cache": "mem_cache.radix_cache",
    "spec_utils": "speculative.spec_utils",
    "penaltylib": "sampling.penaltylib",
}

#: attribute of `Engine` -> members that must exist on it (a method, or a dataclass field)
MEMBERS: dict[str, tuple[str, ...]] = {
    "Scheduler": (
        "run_batch",
        "update_running_batch",
        "_forward_isolation",
        "record_batch_in_overlap",
        "_relay_forward_payload",
        "_copy_result_to_cpu",
        "_reqs_finishing_inflight",
        "_apply_war_barrier",
        "abort_request",
        "stash_chunked_request",
        "process_pending_chunked_abort",
        "launch_batch_sample_if_needed",
        "_advance_pending_grammar",
    ),
    "ScheduleBatch": (
        "init_new",
        "prepare_for_extend",
        "prepare_for_decode",
        "filter_batch",
        "merge_batch",
        "copy",
        "check_decode_mem",
        "mix_with_running",
        "retract_decode",
        "release_req",
        "forward_mode",
        "seq_lens",
        "seq_lens_cpu",
        "out_cache_loc",
        "req_pool_indices",
        "spec_info",
        "input_ids",
        "prefix_lens",
        "extend_lens",
        "chunked_req",
        "decoding_reqs",
        "has_grammar",
    ),
    "Req": ("init_next_round_input", "update_finish_state", "reset_for_retract", "owned_kv_len", "seqlen"),
    "ReqKvInfo": ("req_pool_idx", "kv_committed_len", "kv_allocated_len", "cache_protected_len", "mark_kv_released"),
    "MetricsReporter": ("update_spec_metrics",),
    "ResultProcessor": (
        "process_batch_result_prefill",
        "process_batch_result_decode",
        "_resolve_spec_v2_tokens",
        "advance_grammar_fsm",
        "_accept_grammar_tokens",
    ),
    "FutureMap": (
        "publish",
        "stash",
        "resolve_seq_lens_cpu",
        "stash_bonus_tokens",
        "resolve_mixed_spec_tails",
    ),
    "RadixCache": ("checkpoint", "match_prefix", "evict", "lock", "unlock", "evictable_size", "protected_size"),
    "SamplingBatchInfo": ("copy_for_forward", "update_penalties", "filter_batch", "merge_batch"),
    "ReqToTokenPool": ("alloc", "free", "available_size"),
    "PrefillAdder": ("add_one_req", "add_chunked_req"),
    "SpeculativeAlgorithm": ("supports_mixed_chunk",),
}

#: globals that the adapter replaces because their originals are GPU kernels: (attribute of `Engine`, name)
KERNELS = (("allocation", "assign_req_to_token_pool_func"), ("overlap_utils", "gather_spec_extras"))


class Engine:
    """The loaded SGLang: one attribute per entry of NAMES and MODULES, plus `version` and `path`."""

    def __init__(self, version: str, path: str, members: dict[str, Any]) -> None:
        """version: `sglang.__version__`. path: folder it was imported from. members: resolved names."""
        self.version = version
        self.path = path
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"`{name}` is not among the names of sglang that specfuzz/systems/sglang/versions.py lists"
        )


def load() -> Engine:
    """Import SGLang's scheduler side and check every name; raises MissingPart with one sentence per gap."""
    for name, value in ENVIRONMENT.items():
        os.environ[name] = value
    stubs.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            package = importlib.import_module("sglang")
            version = str(getattr(package, "__version__", "unknown"))
            members = dict(_resolve())
        except ImportError as error:
            raise MissingPart(
                f"SGLang can't be imported with {sys.executable} ({error}). Run "
                "`specfuzz systems install sglang`, or name a checkout with `--engine-path DIR`."
            ) from error
    gaps = [sentence for name, value in members.items() if isinstance(value, _Gap) for sentence in value.sentences]
    gaps += list(_missing_members(members))
    if gaps:
        raise MissingPart(
            f"this SGLang ({version}) differs from {PINNED}, which the adapter is written for: " + " ".join(gaps)
        )
    return Engine(version, str(next(iter(package.__path__), "")), members)


class _Gap:
    """A name that is not where it was."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences


def _resolve() -> Iterator[tuple[str, Any]]:
    for attribute, below in MODULES.items():
        yield attribute, _module(below, f"rebinding names of `{attribute}`")
    for attribute, (below, name, purpose) in NAMES.items():
        module = _module(below, purpose)
        if isinstance(module, _Gap):
            yield attribute, module
        elif not hasattr(module, name):
            yield attribute, _Gap(f"`{name}` is no longer in {_SRT}{below}; it is needed for {purpose}.")
        else:
            yield attribute, getattr(module, name)


def _module(below: str, purpose: str) -> Any:
    try:
        return importlib.import_module(_SRT + below)
    except ModuleNotFoundError as error:
        if error.name is None or not (_SRT + below).startswith(error.name):
            raise
        return _Gap(f"the module {_SRT}{below} is gone; it is needed for {purpose}.")


def _missing_members(members: dict[str, Any]) -> Iterator[str]:
    for attribute, wanted in MEMBERS.items():
        owner = members[attribute]
        if isinstance(owner, _Gap):
            continue
        slots = {field.name for field in fields(owner)} if is_dataclass(owner) else set()
        for member in wanted:
            if member not in slots and not hasattr(owner, member):
                yield f"`{owner.__name__}` has no `{member}` any more; it is needed for {NAMES[attribute][2]}."
    for attribute, name in KERNELS:
        module = members[attribute]
        if not isinstance(module, _Gap) and not hasattr(module, name):
            yield f"`{name}` is no longer in {module.__name__}; the adapter replaces this kernel on the CPU."
