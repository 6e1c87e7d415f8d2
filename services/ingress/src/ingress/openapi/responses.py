"""Descriptions of all problems in the OpenAPI document."""

from typing import Any

from everturn.core.errors import Problem
from ingress.errors import PROBLEM_MIME

_REASONS = {
    400: "The request is malformed.",
    401: "The credential is missing or invalid.",
    403: "The caller may not do this: the rules for roles, origins, guests or development mode reject it.",
    404: "It does not exist, or belongs to another user.",
    408: "The body was not received in time.",
    409: "The request conflicts with the current state.",
    410: "It is no longer available: a cursor that is too old, or a file that was removed.",
    413: "The body, a file or a text exceeds its limit.",
    415: "The content type is not accepted.",
    416: "The range lies outside the file.",
    422: "The request is well-formed but invalid; `errors` names the fields.",
    429: "Too many requests; `Retry-After` says when to retry.",
    431: "The headers are too large.",
    500: "An internal error, or an operation of a bundle failed.",
    502: "The stored file was altered, or an operation of a bundle was lost.",
    503: "Temporarily unavailable; `Retry-After` says when to retry.",
    504: "An operation of a bundle did not end in time.",
}
_ALWAYS = (400, 401, 403, 404, 422, 429, 431, 500, 503)

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457 problem details. `type` is stable.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri", "description": "What went wrong, as a stable URN."},
        "title": {"type": "string", "description": "What went wrong, in a few words."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "detail": {"type": "string", "description": "What was wrong, in a sentence."},
        "instance": {"type": "string", "description": "What the problem is about."},
        "errors": {
            "type": "array",
            "description": "The fields that are wrong, with a message for each.",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses for the problems of every route, and for `statuses`."""
    return {status: _describe(status) for status in sorted({*_ALWAYS, *statuses})}


def _describe(status: int) -> dict[str, Any]:
    reason = _REASONS[status]
    example = Problem(type="urn:everturn:problem:example", title=reason, status=status, detail="What was wrong.")
    schema = {"$ref": "#/components/schemas/Problem"}
    content = {PROBLEM_MIME: {"schema": schema, "example": example.model_dump(exclude_none=True)}}
    return {"description": reason, "content": content}
