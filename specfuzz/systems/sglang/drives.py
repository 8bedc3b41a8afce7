"""Which configurations this adapter drives; both sides of the pipe ask here, so nothing but core is imported."""

from __future__ import annotations

from specfuzz.core.config import EngineConfig
from specfuzz.errors import ConfigError

ALGORITHMS = ("NONE", "EAGLE")


def check_config(config: EngineConfig) -> None:
    """Raise ConfigError, naming both fields, for a configuration that this adapter can't run."""
    if config.algorithm not in ALGORITHMS:
        raise ConfigError(
            f"`algorithm`={config.algorithm} does not fit `system`=sglang: it drives {' and '.join(ALGORITHMS)}."
        )
    if config.speculative and config.topk != 1:
        raise ConfigError(
            f"`topk`={config.topk} does not fit `system`=sglang: it drives {config.algorithm} with topk 1."
        )
    for name in ("mixed_chunk", "chunked_prefill"):
        if getattr(config, name):
            raise ConfigError(f"`{name}`=true does not fit `system`=sglang: the adapter does not drive it yet.")
