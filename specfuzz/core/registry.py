"""A named collection with loud failures: duplicates name both places, unknown names get a "did you mean"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from specfuzz.errors import MissingPart, UnknownName, UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind by name, in order of registration; third parties add theirs through an entry-point group."""

    def __init__(self, kind: str, *, group: str | None = None, load_builtin: Callable[[], None] | None = None) -> None:
        """kind: word for messages ("oracle"). group: entry-point group. load_builtin: imports our own modules, once."""
        self._kind = kind
        self._group = group
        self._load_builtin = load_builtin
        self._loaded = False
        self._things: dict[str, T] = {}

    def register(self, name: str, thing: T) -> T:
        """Add a thing; raises UsageError if the name is taken by another one."""
        if name in self._things:
            raise UsageError(
                f"{self._kind} `{name}` is registered twice: by {_place(self._things[name])} and by {_place(thing)}."
            )
        self._things[name] = thing
        return thing

    def get(self, name: str) -> T:
        """The thing of that name; raises UnknownName with the closest ones."""
        self._load()
        if name not in self._things:
            close = get_close_matches(name, self._things, n=3, cutoff=0.5)
            if not close:  # another case, say, is too far for the letters alone
                close = [other for other in self._things if other.lower() == name.lower()]
            hint = f"Did you mean {' or '.join(f'`{c}`' for c in close)}?" if close else ""
            known = f"Known: {', '.join(self._things) or 'none'}."
            raise UnknownName(f"there is no {self._kind} `{name}`. {hint or known}")
        return self._things[name]

    def names(self) -> tuple[str, ...]:
        """All names in order of registration."""
        self._load()
        return tuple(self._things)

    def __iter__(self) -> Iterator[T]:
        self._load()
        return iter(tuple(self._things.values()))

    def __len__(self) -> int:
        self._load()
        return len(self._things)

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._things

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # first, because the modules that we import register here
        try:
            self._load_all()
        except BaseException:
            self._loaded = False  # a half-filled registry must not pass for a whole one
            raise

    def _load_all(self) -> None:
        if self._load_builtin is not None:
            self._load_builtin()
        for entry in entry_points(group=self._group) if self._group else ():
            try:
                loaded = entry.load()
            except Exception as error:
                raise MissingPart(
                    f"the entry point `{entry.name} = {entry.value}` of `{self._group}` can't be loaded: "
                    f"{type(error).__name__}: {error}. Mend or uninstall the package that brings it."
                ) from error
            # A decorator has registered its thing while the module was imported; anything else is registered here.
            if entry.name not in self._things and loaded not in self._things.values():
                self.register(entry.name, loaded)


def _place(thing: object) -> str:
    target = getattr(thing, "check", thing)
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    return f"{module}.{name}" if module and name else repr(thing)
