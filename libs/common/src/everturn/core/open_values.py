"""Values that a newer version can have written: an unknown value is read as a fallback and counted.

Two neighbouring versions run side by side during an upgrade, and rows of the newer one stay after a rollback. Within
one version the values are closed: `match` must also handle the fallback.
"""

from enum import StrEnum
from typing import Any, Final, Self

import structlog
from pydantic import BeforeValidator, ValidationError, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator

from everturn.core.metrics import UNKNOWN_VALUES

_log = structlog.get_logger(__name__)

MAX_LOGGED: Final = 100
"""Different values that one process logs; more are only counted."""
_MAX_LOGGED_CHARS: Final = 80

_logged: set[tuple[str, str]] = set()


class OpenEnum(StrEnum):
    """An enum stored in rows. It has a member UNKNOWN, or `fallback` returns the member for unknown values."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        report_unknown(cls.__name__, value)
        return cls.fallback()

    @classmethod
    def fallback(cls) -> Self:
        """The member as which an unknown value is read."""
        return cls["UNKNOWN"]


def require_known(kind: type[OpenEnum]) -> BeforeValidator:
    """For a field that a person or a model fills in: rejects unknown values instead of replacing them."""
    known = [member.value for member in kind]

    def check(value: Any) -> Any:
        if value not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return value

    return BeforeValidator(check)


def or_else(kind: str, fallback: str | None) -> WrapValidator:
    """For a `Literal` field of a wire format: any other text is read as `fallback`."""

    def read(value: Any, handler: ValidatorFunctionWrapHandler, _: ValidationInfo) -> Any:
        try:
            return handler(value)
        except ValidationError:
            if not isinstance(value, str):
                raise
            report_unknown(kind, value)
            return fallback

    return WrapValidator(read)


def report_unknown(kind: str, value: str) -> None:
    """Count a value that this version does not know, and log it the first time."""
    UNKNOWN_VALUES.labels(kind).inc()
    seen = kind, value[:_MAX_LOGGED_CHARS]
    if seen not in _logged and len(_logged) < MAX_LOGGED:
        _logged.add(seen)
        _log.warning("Read a value that this version does not know", kind=kind, value=seen[1])
