"""From flags to engines: configurations, opened systems, selected oracles, and the flags that name them again."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from specfuzz.cli.flags import Flags, names_of
from specfuzz.core.config import EngineConfig
from specfuzz.core.oracle import ORACLES, REACHABLE, Oracle, Reachable
from specfuzz.core.port import OpenOptions, System, open_system
from specfuzz.errors import ConfigError, UsageError


def seed_of(flags: Flags) -> int:
    """The seed that was given, or a new one, which the report names."""
    return flags.seed if flags.seed is not None else int.from_bytes(os.urandom(4), "big")


def options_of(flags: Flags) -> OpenOptions:
    """What a system needs to know besides its name; raises UsageError for a checkout that isn't there."""
    if flags.engine_path is not None and not os.path.isdir(flags.engine_path):
        raise UsageError(f"`--engine-path` {flags.engine_path}: there is no such directory.")
    return OpenOptions(device=flags.device, engine_path=flags.engine_path, step_timeout=flags.step_timeout)


@contextlib.contextmanager
def opened(spec: str, options: OpenOptions) -> Iterator[System]:
    """The system, closed again whatever happens; torch, if it came along, works with one thread."""
    if options.engine_path is not None and not _drives_a_checkout(spec):
        raise UsageError(
            f"`--engine-path` {options.engine_path} does not fit `--system` {spec}: that is our own engine, and no "
            "checkout is driven. Add `--system sglang`."
        )
    system = open_system(spec, options)
    one_torch_thread()
    gc.freeze()  # torch and its like stay: no collection needs to walk them, and a full one takes a tenth of a second
    try:
        yield system
    finally:
        gc.unfreeze()
        system.close()


def _drives_a_checkout(spec: str) -> bool:
    """Whether a part of the system may be somebody else's engine: ours are `reference` and its mutants."""
    parts = spec.replace(":", ",").split(",")
    if parts[0] == "mutated":
        return False
    return any(part not in ("reference", "lockstep", "rerun") for part in parts)


def one_torch_thread() -> None:
    """Sums must not depend on how many cores the machine has; does nothing where torch isn't loaded."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


# ------------------------------------------------------------------------------------------------------- configurations
def changes_of(flags: Flags) -> dict[str, Any]:
    """The fields that the flags fix; raises ConfigError for an unknown field or a value of another type."""
    changes: dict[str, Any] = {}
    known = {field.name: type(field.default) for field in fields(EngineConfig)}
    for text in flags.config:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals:
            raise ConfigError(f"`--config {text}` is not KEY=VALUE.")
        if key not in known:
            from specfuzz.cli.main import did_you_mean

            raise ConfigError(
                f"the engine configuration has no field `{key}`.{did_you_mean(key, list(known))} "
                f"Fields: {', '.join(known)}."
            )
        if key in changes:
            raise ConfigError(f"`--config` gives `{key}` twice: {changes[key]} and {value.strip()}.")
        changes[key] = _read(key, value.strip(), known[key])
    for name in ("page_size", "topk"):
        if getattr(flags, name) is not None:
            changes[name] = getattr(flags, name)
    if flags.algorithm not in (None, "all"):
        changes["algorithm"] = known_algorithm(str(flags.algorithm))
    elif "algorithm" in changes:
        known_algorithm(changes["algorithm"])
    if flags.overlap in ("on", "off"):
        changes["overlap"] = flags.overlap == "on"
    return changes


def config_of(flags: Flags, base: EngineConfig | None = None) -> EngineConfig:
    """The one configuration that the flags describe, over `base`; raises UsageError where they ask for several."""
    for flag, several in (("--algorithm all", flags.algorithm == "all"), ("--overlap both", flags.overlap == "both")):
        if several:
            raise UsageError(f"`{flag}` describes several engines, but this needs one.")
    base = base or EngineConfig()
    return base.with_(**base.completed(changes_of(flags)))


def known_algorithm(name: str) -> str:
    """The name, if it is registered; raises UnknownName with the closest ones."""
    from specfuzz.reference.algorithms import ALGORITHMS

    ALGORITHMS.get(name)
    return name


def _read(key: str, value: str, wanted: type) -> Any:
    if wanted is bool:
        words = {
            "true": True,
            "on": True,
            "1": True,
            "yes": True,
            "false": False,
            "off": False,
            "0": False,
            "no": False,
        }
        if value.lower() not in words:
            raise ConfigError(f"`{key}`={value} is not true or false.")
        return words[value.lower()]
    if wanted is int:
        if not (value.isascii() and value.removeprefix("-").isdecimal()) or len(value) > 9:
            raise ConfigError(f"`{key}`={value} is not an integer of at most nine digits.")
        return int(value)
    return value


# -------------------------------------------------------------------------------------------------------------- oracles
def oracles_of(flags: Flags) -> tuple[Oracle, ...]:
    """The oracles that were asked for, or all; raises UnknownName with the closest names."""
    asked = names_of(flags.oracles)
    return tuple(ORACLES.get(name) for name in asked) if asked else tuple(ORACLES)


def goals() -> tuple[Reachable, ...]:
    """All reachable goals."""
    return tuple(REACHABLE)
