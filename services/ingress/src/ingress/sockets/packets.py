"""What this server sends in addition to the library: events, answers and refusals as ready text frames."""

from typing import Any

import orjson

from ingress.errors import ProblemError
from ingress.stream.frames import SentEvent

CONNECTED = "40"
REFUSED = "44"
ANSWER = "43"


def render_event(event: SentEvent) -> str:
    """An event of a stream; its envelope has the same bytes as over SSE."""
    return f'42["{event.name}",{event.payload.decode()}]'


def render_own(name: str, body: Any) -> str:
    """An event of the session."""
    return f'42["{name}",{orjson.dumps(body).decode()}]'


def render_answer(ack: int, answer: dict[str, Any]) -> str:
    """The answer to a call that the library never received, in the library's format."""
    return f"{ANSWER}{ack}[{orjson.dumps(answer).decode()}]"


def render_refused_namespace(namespace: str, refusal: ProblemError) -> str:
    """A refused connection to a namespace; clients get its data in `connect_error`."""
    data = {"message": refusal.detail, "data": build_problem(refusal)}
    place = "" if namespace == "/" else f"{namespace},"
    return f"44{place}{orjson.dumps(data).decode()}"


def render_farewell() -> str:
    """The end of the session; official clients don't reconnect after it."""
    return "41"


def build_problem(refusal: ProblemError) -> dict[str, Any]:
    """The problem in the form that `connect_error` shows; has `retry_after_s` when REST would send Retry-After."""
    retry_after = (refusal.headers or {}).get("Retry-After", "")
    return {**refusal.build_body(), **({"retry_after_s": int(retry_after)} if retry_after.isdigit() else {})}


def build_answer(status: int, body: Any) -> dict[str, Any]:
    """The answer to a call: the status and body that REST would return."""
    return {"status": status, "body": body}


def build_refusal(refusal: ProblemError) -> dict[str, Any]:
    """The answer to a refused call."""
    return build_answer(refusal.answer.status, build_problem(refusal))
