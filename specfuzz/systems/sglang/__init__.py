"""The real SGLang scheduler classes behind the System port; nothing outside of this package imports sglang.

An SGLang that can be imported here is driven in-process; otherwise the environment that `specfuzz systems install
sglang` has built is driven through a process of its own. `--engine-path DIR` puts a checkout before either.
`sglang:MUTANT` opens the engine with one of this package's planted bugs.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from specfuzz.core.port import OpenOptions
from specfuzz.errors import MissingPart, UsageError
from specfuzz.systems.sglang.client import LocalSglang, RemoteSglang
from specfuzz.systems.sglang.environment import INSTALL, engine_python, install, why_not
from specfuzz.systems.sglang.mutants import MUTANTS, PlantedBug
from specfuzz.systems.sglang.versions import PINNED

__all__ = ["MUTANTS", "LocalSglang", "PlantedBug", "RemoteSglang", "availability", "install", "open_sglang"]


def open_sglang(argument: str, options: OpenOptions) -> LocalSglang | RemoteSglang:
    """Open the engine. argument: empty, or the name of a planted bug. Raises MissingPart, UnknownName or UsageError."""
    mutant = MUTANTS.get(argument).name if argument else None
    path = _checkout(options.engine_path)
    if options.device != "cpu":
        raise UsageError(
            f"`--device`={options.device} does not fit `--system`=sglang: its adapter drives the CPU only."
        )
    if _importable():
        return LocalSglang(engine_path=path, mutant=mutant)
    python = engine_python()
    if python is None:
        raise MissingPart(f"SGLang is not here: {why_not()} Run `{INSTALL}`.")
    return RemoteSglang(python, step_timeout=options.step_timeout, engine_path=path, mutant=mutant)


def availability() -> tuple[bool, str, str, str]:
    """(available, version, why_not, install command)."""
    if _importable():
        try:
            return True, version("sglang"), "", INSTALL
        except PackageNotFoundError:
            return True, "unknown", "", INSTALL
    available = engine_python() is not None
    return available, PINNED if available else "", "" if available else why_not(), INSTALL


def _importable() -> bool:
    return find_spec("sglang") is not None


def _checkout(engine_path: str | None) -> str | None:
    """The folder that holds the `sglang` package of a checkout (SGLang's own tree keeps it in `python/`)."""
    if engine_path is None:
        return None
    root = Path(engine_path).expanduser().resolve()
    for folder in (root, root / "python", root.parent if root.name == "sglang" else root):
        if (folder / "sglang" / "srt").is_dir():
            return str(folder)
    raise UsageError(
        f"`--engine-path`={engine_path} holds no `sglang` package, neither directly nor in `python/`, and is none."
    )
