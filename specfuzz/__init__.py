"""specfuzz: fuzz the cross-round bookkeeping of speculative-decoding schedulers.

The names below are what a test suite needs; each is imported when it is first asked for, so that `import specfuzz`
costs nothing. `__init__.pyi` says the same to type checkers.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "Clash",
    "Clock",
    "EngineConfig",
    "Owner",
    "Profile",
    "RunResult",
    "Scope",
    "SpecfuzzError",
    "System",
    "Verdict",
    "machine",
    "oracle",
    "run",
    "run_conformance",
]

_HOMES = {
    "Clash": "specfuzz.core.verdict",
    "Clock": "specfuzz.core.clock",
    "EngineConfig": "specfuzz.core.config",
    "Owner": "specfuzz.core.clock",
    "Profile": "specfuzz.state_machine",
    "RunResult": "specfuzz.suite.run",
    "Scope": "specfuzz.core.clock",
    "SpecfuzzError": "specfuzz.errors",
    "System": "specfuzz.core.port",
    "Verdict": "specfuzz.core.verdict",
    "machine": "specfuzz.suite.machine",
    "oracle": "specfuzz.core.oracle",
    "run": "specfuzz.suite.run",
    "run_conformance": "specfuzz.conformance",
}


# A plain import, even inside of a function, would count as one from here up to `suite`, and everything below imports
# `specfuzz` for its version: the floors of import-linter would have a hole.
def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `specfuzz` has no attribute `{name}`")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
