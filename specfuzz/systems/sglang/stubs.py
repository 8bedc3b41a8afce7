"""Empty stand-ins for packages that SGLang imports but that its scheduler side never runs on a CPU.

Only absent packages are stubbed: the finder stands last, so that a really installed one wins. `triton` can't be
stubbed (torch itself breaks). `torchvision` must never be installed for this purpose: it pulls a CUDA build of torch.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

#: Roots that sglang 0.5.23 imports at module level and that the scheduler side never calls.
STUBBED = ("torchvision", "sgl_kernel")


class _Nothing:
    """Callable, subscriptable, iterable nothing; usable as a base class and as a decorator factory."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def __call__(self, *_args: Any, **_kwargs: Any) -> _Nothing:
        return _Nothing()

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Nothing()

    def __getitem__(self, _key: Any) -> _Nothing:
        return _Nothing()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []
        module.__file__ = "<specfuzz stub>"
        module.__version__ = "0.0.0"  # type: ignore[attr-defined]

        def missing(name: str) -> _Nothing:
            if name.startswith("__"):
                raise AttributeError(name)
            return _Nothing()

        module.__getattr__ = missing  # type: ignore[method-assign]


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = frozenset(roots)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in self.roots:
            return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)
        return None


def install(roots: Sequence[str] = STUBBED) -> tuple[str, ...]:
    """Stub those of `roots` that can't be imported, once per process; returns them. Run it before `import sglang`."""
    known = {root for finder in sys.meta_path if isinstance(finder, _Finder) for root in finder.roots}
    absent = tuple(root for root in roots if root not in known and importlib.util.find_spec(root) is None)
    if absent:
        sys.meta_path.append(_Finder(absent))
    return absent
