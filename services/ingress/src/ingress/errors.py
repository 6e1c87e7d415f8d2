"""Errors as clients see them: RFC 9457 problem details for every error at this edge."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from everturn.core.errors import Conflict, EverturnError, Invalid, NotFound, Problem, Unavailable, problem
from everturn.core.metrics import PROBLEMS
from everturn.core.paging import BadCursor, OldCursor
from everturn.core.work_slots import NoRoom
from everturn.files.objects import AlteredObject
from everturn.files.ports import Revoked
from everturn.turns.inbox import InboxFull, UploadTooLate

PROBLEM_MIME = "application/problem+json"
RETRY_AFTER_S = 2
"""Retry-After of a 503 without a better estimate: as long as accepting a message can take while Redis stalls."""


class ProblemError(HTTPException):
    """The request is rejected with a problem."""

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
        """The last part of its type, such as `too-many`; a bounded set."""
        return self.answer.type.rpartition(":")[2]

    def build_body(self) -> dict[str, Any]:
        """The problem's members as sent to clients."""
        fields: dict[str, Any] = self.answer.model_dump(exclude_none=True, exclude_defaults=False)
        return {**fields, "errors": list(self.errors)} if self.errors else fields


def malformed(detail: str) -> ProblemError:
    """400: the request is malformed."""
    return ProblemError(problem("malformed", "The request is malformed", 400, detail))


def unauthorized(detail: str) -> ProblemError:
    """401: the credential is missing or invalid."""
    challenge = {"WWW-Authenticate": 'Bearer realm="everturn"'}
    return ProblemError(problem("unauthorized", "The request needs a valid credential", 401, detail), headers=challenge)


def forbidden(detail: str) -> ProblemError:
    """403: the rules for roles, origins, guests or development mode reject the request."""
    return ProblemError(problem("forbidden", "The request is not allowed", 403, detail))


def absent(detail: str = "") -> ProblemError:
    """404: it does not exist for this caller."""
    return ProblemError(problem("not-found", "Not found", 404, detail))


def gone(detail: str) -> ProblemError:
    """410: it existed, and was removed."""
    return ProblemError(problem("gone", "This is no longer available", 410, detail))


def too_large(detail: str, *, errors: Sequence[Mapping[str, str]] = ()) -> ProblemError:
    """413: a size limit was exceeded."""
    return ProblemError(problem("too-large", "The request is too large", 413, detail), errors=errors)


def too_slow(detail: str) -> ProblemError:
    """408: the request was not received in time."""
    return ProblemError(
        problem("too-slow", "The request was not received in time", 408, detail), headers={"Connection": "close"}
    )


def unsupported(detail: str, *, errors: Sequence[Mapping[str, str]] = ()) -> ProblemError:
    """415: this media type is not accepted here."""
    answer = problem("unsupported-type", "This type of content is not accepted", 415, detail)
    return ProblemError(answer, errors=errors)


def headers_too_large(detail: str) -> ProblemError:
    """431: too many or too large headers."""
    return ProblemError(problem("headers-too-large", "The headers are too large", 431, detail))


def unprocessable(detail: str, *, errors: Sequence[Mapping[str, str]] = ()) -> ProblemError:
    """422: well-formed, but invalid."""
    return ProblemError(problem("unprocessable", "The request is invalid", 422, detail), errors=errors)


def unknown_bundle(detail: str, *, errors: Sequence[Mapping[str, str]] = (), status: int = 422) -> ProblemError:
    """422, or 404 for one in the path: the caller can't use this bundle, whether it exists or not."""
    return ProblemError(problem("unknown-bundle", "The bundle is unknown", status, detail), errors=errors)


def operation_problem(kind: str, title: str, status: int, detail: str) -> ProblemError:
    """The problem `operation-<kind>`: how an operation of a bundle ended without a result."""
    return ProblemError(problem(f"operation-{kind}", title, status, detail))


def too_many(detail: str, *, retry_after_s: int) -> ProblemError:
    """429: this caller has reached a limit."""
    answer = problem("too-many", "Too many requests", 429, detail)
    return ProblemError(answer, headers={"Retry-After": str(retry_after_s)})


def internal_error() -> ProblemError:
    """500: an unexpected error, about which clients learn nothing."""
    return ProblemError(problem("internal", "Something went wrong on our side", 500, "The error was logged."))


def unavailable(
    detail: str, *, retry_after_s: int = RETRY_AFTER_S, errors: Sequence[Mapping[str, str]] = ()
) -> ProblemError:
    """503: temporarily unavailable."""
    answer = problem("unavailable", "The service is temporarily unavailable", 503, detail)
    return ProblemError(answer, headers={"Retry-After": str(retry_after_s)}, errors=errors)


def translate_error(error: EverturnError) -> ProblemError | None:
    """The response to an error of the platform; None for a bug."""
    match error:
        case Revoked():
            return gone("The file was found to be harmful and was removed.")
        case NotFound():
            return absent()
        case InboxFull():
            return too_many(str(error), retry_after_s=RETRY_AFTER_S)
        case Conflict():
            return ProblemError(problem("conflict", "The request conflicts with the current state", 409, _say(error)))
        case BadCursor():
            return malformed(str(error))
        case OldCursor():
            return gone(str(error))
        case Invalid():
            return unprocessable(_say(error))
        case AlteredObject():
            return ProblemError(problem("altered", "The stored file was altered", 502, ""))
        case NoRoom():
            return unavailable(error.detail)
        case UploadTooLate():
            return unavailable(str(error))
        case Unavailable():
            return unavailable("A component of the service does not respond.")
        case _:
            return None


def _say(error: EverturnError) -> str:
    """The message of an error without the sentence of the root classes, which repeats the problem's title."""
    return error.detail if type(error) in (Conflict, Invalid) else str(error)


def problem_response(error: ProblemError) -> Response:
    """The HTTP response of a problem; also counts it."""
    PROBLEMS.labels(kind=error.kind, status=str(error.answer.status)).inc()
    return Response(
        orjson.dumps(error.build_body()),
        status_code=error.answer.status,
        media_type=PROBLEM_MIME,
        headers=dict(error.headers or {}),
    )
