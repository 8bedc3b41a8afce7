"""Builds a real SGLang `Scheduler` around fakes: pools, allocator, tree, relay, result processor and the toy worker.

`Scheduler.__init__` starts model workers, sockets and process groups, so the object is made without it and gets
exactly the attributes that its scheduling methods read. Real: everything under `Rig` that is not named fake. Fake:
the worker, the KV payload, streams (on a CPU they are no-ops), metrics, output streaming and ingest.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable
from types import MethodType, SimpleNamespace
from typing import Any

import torch

from specfuzz.core.config import EngineConfig
from specfuzz.errors import ConfigError
from specfuzz.systems.sglang import kernels, penalties
from specfuzz.systems.sglang.content import ToyModel
from specfuzz.systems.sglang.drives import check_config
from specfuzz.systems.sglang.trees import TreeWorker
from specfuzz.systems.sglang.versions import Engine
from specfuzz.systems.sglang.worker import ToyWorker

#: Beyond every token id of the toy language, so that the engine's NaN guard never fires on a right token.
VOCAB_SIZE = 1 << 41


class _NoStream:
    """A stream on a device that has none."""

    cuda_stream = 0

    def wait_stream(self, _stream: Any) -> None: ...

    def wait_event(self, _event: Any) -> None: ...

    def synchronize(self) -> None: ...


class _NoContext(contextlib.AbstractContextManager[None]):
    """A reusable `with` that does nothing."""

    def __exit__(self, *_exc: object) -> None:
        return None


class _Silent:
    """A collaborator whose every method does nothing: metrics, beams, publishers."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_kwargs: None


class _Ticks:
    """Stands for the `time` module in the tree: a counter, so that least-recently-used order is exact and repeatable.

    `count` also tells an observer whether the tree was touched: every match, insert, split and eviction reads it.
    """

    def __init__(self) -> None:
        self.count = 0

    def monotonic(self) -> float:
        self.count += 1
        return float(self.count)

    perf_counter = monotonic


def publish_config(engine: Engine, config: EngineConfig) -> None:
    """Make `config` the process-wide server configuration of SGLang; unresolved, so that no hook corrects it."""
    engine.reset_context()
    arguments: dict[str, Any] = {
        "model_path": "dummy",
        "device": "cpu",
        "attention_backend": "torch_native",
        "page_size": config.page_size,
        "disable_radix_cache": not config.radix,
        "disable_overlap_schedule": not config.overlap,
        "enable_mixed_chunk": config.mixed_chunk,
    }
    if config.speculative:
        arguments |= {
            "speculative_algorithm": config.algorithm,
            "speculative_num_steps": config.spec_steps,
            "speculative_eagle_topk": config.topk,
            "speculative_num_draft_tokens": config.draft_token_num,
        }
    engine.publish_config(
        engine.ServerArgs(**arguments), role="specfuzz", ranks=engine.SpawnRanks(world_rank=0, dp_rank=None)
    )


class Rig:
    """One fresh engine: the scheduler and everything that the driver and the observer need to reach."""

    def __init__(self, engine: Engine, config: EngineConfig) -> None:
        """config: already published as the server configuration."""
        check_config(config)
        logging.getLogger("sglang").setLevel(logging.CRITICAL)
        kernels.install(engine)
        penalties.install(engine)
        self.engine = engine
        self.config = config
        self.algorithm = engine.SpeculativeAlgorithm.from_string(config.algorithm if config.speculative else None)
        if config.mixed_chunk and not (self.algorithm.is_none() or self.algorithm.supports_mixed_chunk()):
            raise ConfigError(
                f"`mixed_chunk`=true does not fit `algorithm`={config.algorithm}: this SGLang can't mix it."
            )
        # The engine's own headroom, not ours: a row that is too narrow for the reserve is a finding.
        self.rows = engine.ReqToTokenPool(
            size=config.max_reqs, max_context_len=config.context_len + engine.extra_context_len(), device="cpu",
            enable_memory_saver=False,
        )  # fmt: skip
        self.allocator = self._allocator()
        self.ticks = _Ticks()
        engine.radix_cache.time = self.ticks
        self.tree = engine.RadixCache(
            engine.CacheInitParams(
                disable=not config.radix,
                req_to_token_pool=self.rows,
                token_to_kv_pool_allocator=self.allocator,
                page_size=config.page_size,
                is_eagle=self.algorithm.is_eagle(),
            )
        )
        self.model = ToyModel(config.pool_tokens + config.page_size, config.row_width + 1, draft=config.speculative)
        worker = TreeWorker if config.speculative and config.topk > 1 else ToyWorker
        self.worker = worker(engine, config, self.model, self.rows.req_to_token)
        self.model_config = SimpleNamespace(
            is_encoder_decoder=False, vocab_size=VOCAB_SIZE, think_end_ids=None, self_opened_think_start_ids=None,
            hf_config=SimpleNamespace(),
        )  # fmt: skip
        self.dropped_by_engine: list[str] = []  # rids that the engine answered with an abort outside of any result
        self.scheduler = self._scheduler()

    def _allocator(self) -> Any:
        config, engine = self.config, self.engine
        fields = {
            "size": config.pool_tokens, "dtype": torch.float16, "device": "cpu",
            "kvcache": SimpleNamespace(), "need_sort": False,
        }  # fmt: skip
        if config.page_size == 1:
            return engine.TokenAllocator(**fields)
        return engine.PagedAllocator(page_size=config.page_size, **fields)

    def _metrics(self) -> Any:
        """Silent but for the acceptance counts, which the engine's own method adds up."""
        metrics = _Silent(
            enable_metrics=False, num_retracted_reqs=0, num_generated_tokens=0, forward_ct_decode=0,
            spec_num_forward_ct=0, spec_num_accept_tokens=0, spec_num_correct_drafts=0,
            spec_num_block_accept_tokens=0, spec_num_cap_tokens=0,
        )  # fmt: skip
        metrics.__dict__["update_spec_metrics"] = MethodType(self.engine.MetricsReporter.update_spec_metrics, metrics)
        return metrics

    def _scheduler(self) -> Any:
        engine, config = self.engine, self.config
        scheduler = object.__new__(engine.Scheduler)
        metrics = self._metrics()
        beams = _Silent(commit_decode=lambda batch: set(), pending_member_rows=lambda batch: 0)
        scheduler.__dict__.update(
            # who and where
            device="cpu", device_module=torch.cpu, model_config=self.model_config, is_generation=True,
            disaggregation_mode=engine.DisaggregationMode.NULL, pp_group=SimpleNamespace(is_last_rank=True),
            # the parts under test
            enable_overlap=config.overlap, spec_algorithm=self.algorithm, req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.allocator, tree_cache=self.tree,
            future_map=self.algorithm.create_future_map("cpu", self.rows), result_queue=deque(),
            running_batch=engine.ScheduleBatch(reqs=[]), last_batch=None, waiting_queue=[], chunked_req=None,
            is_mixed_chunk=config.mixed_chunk,
            batch_record_buf=[None, None], batch_record_ct=0, forward_ct=0, processed_tokens_counter=0,
            enable_skip_finishing_decode=config.overlap, enable_continuous_input_polling=True,
            new_token_ratio_tracker=engine.NewTokenRatioTracker.from_config(),
            # the fake side
            model_worker=self.worker, tp_worker=self.worker, draft_worker=None, send_abort_output=self._answered,
            forward_stream=_NoStream(), schedule_stream=_NoStream(), copy_stream=_NoStream(),
            forward_stream_ctx=_NoContext(), copy_stream_ctx=_NoContext(), metrics_reporter=metrics,
            beam_coordinator=beams, profiler_manager=_Silent(), grammar_manager=_Silent(),
            update_cache_from_scheduler=lambda batch, result: None,
            # features that are off
            enable_async_d2h_copy=False, enable_unified_memory=False, enable_unified_cache_external_linker=False,
            enable_pdmux=False, enable_fpm=False, enable_priority_scheduling=False, enable_hicache_storage=False,
            enable_lmcache=False, attn_dp_enabled=False, max_queued_requests=None, decode_offload_manager=None,
            dllm_config=None, mm_receiver=None, rust_server=None, scripted_scheduler_hook=None,
            scheduler_stage_metrics=None, forward_sleep_time=None,
            _confidence_budget_prepare=None, _war_barrier_enabled=False, _sched_idled=False,
            _pending_chunked_abort_req=None,
        )  # fmt: skip
        # Uninitialised memory would make a missing publish or stash differ from run to run.
        scheduler.future_map.new_seq_lens_buf.fill_(-1)
        scheduler.future_map.output_tokens_buf.fill_(-1)
        scheduler.future_map.needs_cpu_seq_lens = config.needs_cpu_seq_lens
        scheduler.batch_result_processor = engine.ResultProcessor(
            is_generation=True, disaggregation_mode=scheduler.disaggregation_mode, enable_overlap=config.overlap,
            enable_overlap_mlx=False, model_config=self.model_config, token_to_kv_pool_allocator=self.allocator,
            tree_cache=self.tree, hisparse_coordinator=None, req_to_token_pool=self.rows, decode_offload_manager=None,
            metrics_collector=None, metrics_reporter=metrics, draft_worker=None, model_worker=self.worker,
            logprob_result_processor=None, output_streamer=_Silent(), beam_coordinator=beams,
            abort_request=scheduler.abort_request,
        )  # fmt: skip
        return scheduler

    def _answered(self, _abort: Any, req: Any) -> None:
        self.dropped_by_engine.append(req.rid)
