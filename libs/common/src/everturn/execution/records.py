"""Messages as frames: converts frozen dataclasses to and from the JSON objects of `framing`, and rejects anything else.

Standard library only: the executor imports this module, `execution` and `framing`, nothing else of ours.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import ClassVar, Final, Literal, Protocol, TypeVar, cast

ADDED_LATER: Final = types.MappingProxyType({"added": "later"})
"""The metadata of a field that older versions do not know. It is sent only if it differs from its default."""
_UNIONS: Final = (types.UnionType, typing.Union)  # `Literal[...] | None` has the second type


class MessageClass(Protocol):
    """A message class has the message's kind."""

    kind: ClassVar[str]


Record = TypeVar("Record", bound=MessageClass)


class BadMessage(Exception):
    """A frame is not the message that belongs here."""


def build_message(record: MessageClass) -> dict[str, object]:
    """A message as a frame's object, tagged with its kind."""
    return {"kind": record.kind, **_plain_fields(record)}


def parse_message(frame: Mapping[str, object], *allowed: type[Record]) -> Record:
    """The message in a frame, one of the `allowed` classes; unknown kinds, fields and wrong types raise BadMessage."""
    for cls in allowed:
        if frame.get("kind") == cls.kind:
            return cast("Record", _parse_record(cls, {key: frame[key] for key in frame if key != "kind"}))
    raise BadMessage(f"unexpected message {str(frame.get('kind'))[:40]!r}")


def _plain_fields(record: object) -> dict[str, object]:
    fields = dataclasses.fields(cast("typing.Any", record))
    values = {entry: getattr(record, entry.name) for entry in fields}
    return {
        entry.name: _plain(value)
        for entry, value in values.items()
        if not (entry.metadata is ADDED_LATER and value == entry.default)
    }


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_fields(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    return value


@functools.cache
def _load_hints(cls: type) -> dict[str, object]:
    """The types of a record's fields by name; cached, because computing them takes longer than the rest."""
    hints = typing.get_type_hints(cls)
    return {entry.name: hints[entry.name] for entry in dataclasses.fields(cls)}


def _parse_record(cls: type, values: Mapping[str, object]) -> object:
    hints = _load_hints(cls)
    if unknown := [key for key in values if key not in hints]:
        raise BadMessage(f"{cls.__name__} has no field {unknown[0][:40]!r}")
    try:
        return cls(**{key: _parse(hints[key], value, f"{cls.__name__}.{key}") for key, value in values.items()})
    except TypeError as error:
        raise BadMessage(f"{cls.__name__} lacks a field") from error


def _parse(hint: object, value: object, where: str) -> object:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is object or (origin is Literal and isinstance(value, str) and value in args):
        return value
    if hint is float and type(value) is int:
        return float(value)
    if isinstance(hint, type) and origin is None and type(value) is hint:
        return value
    if isinstance(value, dict):
        return _parse_mapping(hint, cast("dict[str, object]", value), where)
    if origin is tuple and isinstance(value, list):
        return _parse_items(args, cast("list[object]", value), where)
    if origin in _UNIONS:
        if value is None and types.NoneType in args:
            return None
        return _parse(next(arg for arg in args if arg is not types.NoneType), value, where)
    raise BadMessage(f"{where} has the wrong type")


def _parse_mapping(hint: object, value: dict[str, object], where: str) -> object:
    args = typing.get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _parse_record(hint, value)
    if typing.get_origin(hint) is dict:
        return {key: _parse(args[1], item, where) for key, item in value.items()}
    if typing.get_origin(hint) in _UNIONS:
        return _parse_mapping(next(arg for arg in args if arg is not types.NoneType), value, where)
    raise BadMessage(f"{where} has the wrong type")


def _parse_items(args: tuple[object, ...], value: list[object], where: str) -> tuple[object, ...]:
    if len(args) == 2 and args[1] is ...:
        return tuple(_parse(args[0], item, where) for item in value)
    if len(args) != len(value):
        raise BadMessage(f"{where} has the wrong length")
    return tuple(_parse(arg, item, where) for arg, item in zip(args, value, strict=True))
