"""Errors as clients see them: RFC 9457 problem details for everything that goes wrong at this edge."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from everturn.errors import Conflict, EverturnError, Invalid, NotFound, Unavailable
from everturn.model.problems import Problem, problem
from everturn.ports.artifacts import Revoked
from everturn.ports.inbox import InboxFull, TenantFull
from everturn.ports.objects import AlteredObject
from everturn.telemetry.metrics import PROBLEMS
from everturn.wire.cursors import BadCursor, OldCursor

PROBLEM_MIME = "application/problem+json"
RETRY_AFTER_S = 2
"""What a 503 without a better estimate asks for: as long as the accept path may take under a Redis stall (F6)."""


class ProblemError(HTTPException):
    """The request is refused with a problem."""

    def __init__(
        self,
        answer: Problem,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(status_code=answer.status, detail=answer.detail or answer.title, headers=headers)
        self.answer = answer
        self.errors = errors

    @property
    def kind(self) -> str:
        """The word that its type ends with, such as `too-many`; a bounded set."""
        return self.answer.type.rpartition(":")[2]

    def build_body(self) -> dict[str, Any]:
        """The problem's members as clients get them."""
        fields: dict[str, Any] = self.answer.model_dump(exclude_none=True, exclude_defaults=False)
        return {**fields, "errors": list(self.errors)} if self.errors else fields


def malformed(detail: str) -> ProblemError:
    """400: the request can't be read."""
    return ProblemError(problem("malformed", "The request can't be read", 400, detail))


def unauthorized(detail: str) -> ProblemError:
    """401: the credential is missing or bad."""
    challenge = {"WWW-Authenticate": 'Bearer realm="everturn"'}
    return ProblemError(problem("unauthorized", "The request needs a valid credential", 401, detail), headers=challenge)


def forbidden(detail: str) -> ProblemError:
    """403: not allowed, whoever asks."""
    return ProblemError(problem("forbidden", "The request is not allowed", 403, detail))


def absent(detail: str = "") -> ProblemError:
    """404: there is no such thing for this caller."""
    return ProblemError(problem("not-found", "There is no such thing", 404, detail))


def gone(detail: str) -> ProblemError:
    """410: it was there, and is not any more."""
    return ProblemError(problem("gone", "This is not there any more", 410, detail))


def too_large(detail: str, *, errors: Sequence[Mapping[str, str]] = ()) -> ProblemError:
    """413: a cap was exceeded."""
    return ProblemError(problem("too-large", "The request is too large", 413, detail), errors=errors)


def too_slow(detail: str) -> ProblemError:
    """408: the body does not come."""
    return ProblemError(
        problem("too-slow", "The request did not come in time", 408, detail), headers={"Connection": "close"}
    )


def unsupported(detail: str, *, errors: Sequence[Mapping[str, str]] = ()) -> ProblemError:
    """415: a media type that is not taken here."""
    answer = problem("unsupported-type", "This type of content is not accepted", 415, detail)
    return ProblemError(answer, errors=errors)


def headers_too_large(detail: str) -> ProblemError:
    """431: more headers than are taken."""
    return ProblemError(problem("headers-too-large", "The headers are too large", 431, detail))


def unprocessable(detail: str, *, errors: Sequence[Mapping[str, str]] = ()) -> ProblemError:
    """422: readable, but not acceptable."""
    return ProblemError(problem("unprocessable", "The request is not acceptable", 422, detail), errors=errors)


def too_many(detail: str, *, retry_after_s: int) -> ProblemError:
    """429: this caller has enough already."""
    answer = problem("too-many", "Too many at once", 429, detail)
    return ProblemError(answer, headers={"Retry-After": str(retry_after_s)})


def unavailable(
    detail: str, *, retry_after_s: int = RETRY_AFTER_S, errors: Sequence[Mapping[str, str]] = ()
) -> ProblemError:
    """503: not now."""
    answer = problem("unavailable", "The service can't do this right now", 503, detail)
    return ProblemError(answer, headers={"Retry-After": str(retry_after_s)}, errors=errors)


def translate_error(error: EverturnError) -> ProblemError | None:
    """The answer to an error of the platform; None when it is our own fault."""
    match error:
        case Revoked():
            return gone("It was found to be harmful and was taken away.")
        case NotFound():
            return absent()
        case InboxFull():
            return too_many(str(error), retry_after_s=RETRY_AFTER_S)
        case TenantFull():
            return too_many(str(error), retry_after_s=RETRY_AFTER_S)
        case Conflict():
            return ProblemError(problem("conflict", "The request contradicts the present state", 409, _say(error)))
        case BadCursor():
            return malformed(str(error))
        case OldCursor():
            return gone(str(error))
        case Invalid():
            return unprocessable(_say(error))
        case AlteredObject():
            return ProblemError(problem("altered", "The stored file is not what was stored", 502, ""))
        case Unavailable():
            return unavailable("A part of the service does not answer.")
        case _:
            return None


def _say(error: EverturnError) -> str:
    """What an error says beyond the sentence of the root classes, which the problem's title says already."""
    return error.detail if type(error) in (Conflict, Invalid) else str(error)


def problem_response(error: ProblemError) -> Response:
    """The HTTP response of a problem, counted."""
    PROBLEMS.labels(kind=error.kind, status=str(error.answer.status)).inc()
    return Response(
        orjson.dumps(error.build_body()),
        status_code=error.answer.status,
        media_type=PROBLEM_MIME,
        headers=dict(error.headers or {}),
    )
