"""Records at the price of plain objects: a run makes a dozen of them for every event."""

from __future__ import annotations

from dataclasses import Field, field, fields, make_dataclass
from typing import Any, TypeVar

T = TypeVar("T")


def unguarded(cls: type[T]) -> type[T]:
    """Decorates a frozen dataclass: frozen for the type checker and for every reader, without the guard at run time.

    The guard makes each field of a new record a call, which together costs more than all else in a snapshot.
    """
    del cls.__setattr__, cls.__delattr__
    plain = make_dataclass(cls.__name__, [(one.name, object, _same(one)) for one in fields(cls)])  # type: ignore[arg-type]
    cls.__init__ = plain.__init__  # type: ignore[method-assign, misc]
    return cls


def _same(one: Field[Any]) -> Any:
    return field(default=one.default, default_factory=one.default_factory, kw_only=one.kw_only)
