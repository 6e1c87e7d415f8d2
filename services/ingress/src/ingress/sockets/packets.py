"""What this server sends beside the library: events, answers and refusals as ready text frames."""

from typing import Any

import orjson

from ingress.errors import ProblemError
from ingress.stream.frames import SentEvent

CONNECTED = "40"
REFUSED = "44"
ANSWER = "43"


def render_event(event: SentEvent) -> str:
    """An event of a stream; its envelope is the same bytes as over SSE."""
    return f'42["{event.name}",{event.payload.decode()}]'


def render_own(name: str, body: Any) -> str:
    """An event of the session."""
    return f'42["{name}",{orjson.dumps(body).decode()}]'


def render_answer(ack: int, answer: dict[str, Any]) -> str:
    """The answer to a call, in the name of the library that was not asked."""
    return f"{ANSWER}{ack}[{orjson.dumps(answer).decode()}]"


def render_refused_namespace(namespace: str, refusal: ProblemError) -> str:
    """A refused connection to a namespace; `connect_error` shows its data."""
    data = {"message": refusal.detail, "data": build_problem(refusal)}
    place = "" if namespace == "/" else f"{namespace},"
    return f"44{place}{orjson.dumps(data).decode()}"


def render_farewell() -> str:
    """The session is over; an official client does not come back by itself."""
    return "41"


def build_problem(refusal: ProblemError) -> dict[str, Any]:
    """The problem alone, as `connect_error` shows it; `retry_after_s` is there when REST would send Retry-After."""
    retry_after = (refusal.headers or {}).get("Retry-After", "")
    return {**refusal.build_body(), **({"retry_after_s": int(retry_after)} if retry_after.isdigit() else {})}


def build_answer(status: int, body: Any) -> dict[str, Any]:
    """What a call is answered with: the status and the body that REST would give."""
    return {"status": status, "body": body}


def build_refusal(refusal: ProblemError) -> dict[str, Any]:
    """The answer to a refused call."""
    return build_answer(refusal.answer.status, build_problem(refusal))
