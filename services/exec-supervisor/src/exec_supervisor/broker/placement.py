"""On which nodes of a cluster the Pods of runs are scheduled: what an operator writes, checked as the cluster would."""

import re
from dataclasses import dataclass
from typing import Any, Final

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
MAX_ENTRIES: Final = 32

_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_KEY: Final = re.compile(rf"({_DOMAIN}/)?{_NAME}")
_VALUE: Final = re.compile(rf"({_NAME})?")


@dataclass(frozen=True, slots=True)
class Toleration:
    """Of a taint. `value` is None for any value, and `effect` is empty for every effect."""

    key: str
    value: str | None = None
    effect: str = ""

    def build(self) -> dict[str, Any]:
        """The toleration as a Pod has it."""
        matched = {"operator": "Exists"} if self.value is None else {"operator": "Equal", "value": self.value}
        return {"key": self.key, **matched} | ({"effect": self.effect} if self.effect else {})


def parse_node_selector(text: str) -> dict[str, str]:
    """`pool=programs,kubernetes.io/arch=amd64` as the labels that a node must have. Raises ValueError."""
    labels: dict[str, str] = {}
    for entry in _split(text):
        key, equals, value = entry.partition("=")
        if not equals:
            raise ValueError(f"{entry!r} is not a label of a node such as pool=programs")
        _check_key(key, entry)
        _check_value(value, entry)
        if key in labels:
            raise ValueError(f"{key} occurs twice, and a node has one value of a label")
        labels[key] = value
    return labels


def parse_tolerations(text: str) -> tuple[Toleration, ...]:
    """`programs=only:NoSchedule,spot` in the notation of `kubectl taint`: without a value, any value is tolerated;
    without an effect, every effect. Raises ValueError."""
    return tuple(_parse_toleration(entry) for entry in _split(text))


def _parse_toleration(entry: str) -> Toleration:
    taint, colon, effect = entry.partition(":")
    key, equals, value = taint.partition("=")
    _check_key(key, entry)
    _check_value(value, entry)
    if colon and effect not in EFFECTS:
        raise ValueError(f"{effect!r} in {entry!r} is not a taint effect: {', '.join(EFFECTS)}")
    return Toleration(key, value if equals else None, effect)


def _split(text: str) -> list[str]:
    entries = [part.strip() for part in text.split(",")] if text.strip() else []
    if "" in entries:
        raise ValueError("an entry between commas is empty")
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"at most {MAX_ENTRIES} entries are possible")
    return entries


def _check_key(key: str, entry: str) -> None:
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"{key!r} in {entry!r} is not a valid label key: a name, or domain/name, such as example.org/pool"
        )


def _check_value(value: str, entry: str) -> None:
    if not _VALUE.fullmatch(value):
        raise ValueError(
            f"{value!r} in {entry!r} is not a valid label value: at most 63 letters, digits, '-', '_' and '.'"
        )
