"""How problems stand in the OpenAPI document."""

from typing import Any

from everturn.model.problems import Problem
from ingress.errors import PROBLEM_MIME

_REASONS = {
    400: "The request can't be read.",
    401: "The credential is missing or bad.",
    403: "Not allowed, whoever asks: by the checks of origins, of guests or of development mode.",
    404: "There is no such thing for this caller; also the answer to what belongs to others.",
    408: "The body did not come in time.",
    409: "The request contradicts the present state.",
    410: "It was there once: a cursor that is too old, or a file that was taken away.",
    413: "The body, a file or a text is above its cap.",
    415: "The type of the content is not accepted.",
    416: "The range lies outside the file.",
    422: "Readable, but not acceptable; `errors` names the fields.",
    429: "Too many at once; `Retry-After` says when.",
    431: "The headers are too large.",
    500: "An error of ours.",
    502: "The stored file is not what was stored.",
    503: "Not now; `Retry-After` says when.",
}
_ALWAYS = (400, 401, 403, 404, 422, 429, 431, 500, 503)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses for the problems every route can have, and these."""
    return {status: _describe(status) for status in sorted({*_ALWAYS, *statuses})}


def _describe(status: int) -> dict[str, Any]:
    reason = _REASONS[status]
    example = Problem(type="urn:everturn:problem:example", title=reason, status=status, detail="What was wrong.")
    schema = {"$ref": "#/components/schemas/Problem"}
    content = {PROBLEM_MIME: {"schema": schema, "example": example.model_dump(exclude_none=True)}}
    return {"description": reason, "content": content}


PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457 problem details. `type` is stable.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}
