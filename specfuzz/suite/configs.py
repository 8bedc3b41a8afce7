"""From what a suite says about the engine's configuration to the configurations that are run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from specfuzz.core.config import EngineConfig
from specfuzz.errors import ConfigError

#: What `machine` and `run` take as `config`.
ConfigLike = EngineConfig | Mapping[str, Any] | None


def checked(config: ConfigLike) -> EngineConfig | dict[str, Any]:
    """The configuration, or the fields that it fixes; raises ConfigError for an unknown field or a value's type."""
    if isinstance(config, EngineConfig):
        return config
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"`config` is a `{type(config).__name__}`: give an EngineConfig or a dict of its fields.")
    fixed = dict(config or {})
    wanted = {field.name: type(field.default) for field in fields(EngineConfig)}
    for name, value in fixed.items():
        if name not in wanted:
            EngineConfig().with_(**{str(name): value})
        elif type(value) is not wanted[name]:
            EngineConfig(**{name: value})  # whose first complaint is about the type, whatever else may clash
    return fixed


def one_config(config: ConfigLike) -> EngineConfig:
    """Exactly one configuration: what a dict leaves open has its default. Raises ConfigError."""
    found = checked(config)
    if isinstance(found, EngineConfig):
        return found
    base = EngineConfig()
    return base.with_(**base.completed(found))


def several_configs(config: ConfigLike) -> tuple[EngineConfig, ...]:
    """What a campaign walks: an EngineConfig is itself, and what a dict leaves open varies as in `specfuzz fuzz`.

    Raises ConfigError if nothing is left.
    """
    from specfuzz.campaign.covers import Factors, covering_configs
    from specfuzz.reference.algorithms import ALGORITHMS

    found = checked(config)
    if isinstance(found, EngineConfig):
        return (found,)
    return covering_configs(Factors(algorithms=ALGORITHMS.names(), fixed=found))
