"""Which configurations this adapter drives; both sides of the pipe ask here, so nothing but core is imported."""

from __future__ import annotations

from specfuzz.core.config import EngineConfig
from specfuzz.errors import ConfigError

ALGORITHMS = ("NONE", "EAGLE")

#: Those of them whose worker extends running rows beside a prefill. Where the engine is at hand, its own
#: `SpeculativeAlgorithm.supports_mixed_chunk` is asked as well; plain decoding is not its business.
MIXED_CHUNK = ("NONE", "EAGLE")


def check_config(config: EngineConfig) -> None:
    """Raise ConfigError, naming both fields, for a configuration that this adapter can't run."""
    if config.algorithm not in ALGORITHMS:
        raise ConfigError(
            f"`algorithm`={config.algorithm} does not fit `system`=sglang: it drives {' and '.join(ALGORITHMS)}."
        )
    if config.mixed_chunk and config.algorithm not in MIXED_CHUNK:
        raise ConfigError(
            f"`mixed_chunk`=true does not fit `algorithm`={config.algorithm}: SGLang mixes {' and '.join(MIXED_CHUNK)}."
        )
