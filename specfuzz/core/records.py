"""Records at the price of plain objects: a run makes a dozen of them for every event."""

from __future__ import annotations

from dataclasses import field, fields, make_dataclass
from typing import TypeVar

T = TypeVar("T")


def unguarded(cls: type[T]) -> type[T]:
    """Decorates a frozen dataclass: frozen for the type checker and for every reader, without the guard at run time.

    The guard makes each field of a new record a call, which together costs more than all else in a snapshot.
    """
    del cls.__setattr__, cls.__delattr__
    plain = make_dataclass(
        cls.__name__,
        [(one.name, object, field(default=one.default, kw_only=one.kw_only)) for one in fields(cls)],  # type: ignore[arg-type]
    )
    cls.__init__ = plain.__init__  # type: ignore[method-assign, misc]
    return cls
