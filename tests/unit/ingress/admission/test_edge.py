"""The outermost layer answers unhandled errors, and counts."""

from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from everturn.limits.token_buckets import Level, Limit
from ingress.admission.edge import MAX_CONTENT_TYPE_BYTES, MAX_HEADER_BYTES, OuterMiddleware
from ingress.admission.limits import DRAWN_KEY, Drawn
from ingress.metrics import IngressMetrics


class Sent:
    """Collects what an application sends."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def status(self) -> int:
        return self.messages[0]["status"]


async def receive() -> Message:
    return {"type": "http.request"}


def scope(headers: list[tuple[bytes, bytes]] | None = None) -> Scope:
    return {"type": "http", "method": "GET", "path": "/x", "query_string": b"", "headers": headers or []}


async def run(app: Any, request: Scope) -> tuple[Sent, IngressMetrics]:
    metrics, sent = IngressMetrics(), Sent()
    await OuterMiddleware(app, metrics=metrics, monotonic=lambda: 0.0)(request, receive, sent)
    return sent, metrics


def value(metrics: IngressMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


async def test_an_unexpected_error_is_a_500_problem_without_details() -> None:
    async def broken(_: Scope, __: Receive, ___: Send) -> None:
        raise RuntimeError("the secret inside")

    sent, metrics = await run(broken, scope())

    assert sent.status == 500
    assert b"urn:everturn:problem:internal" in sent.messages[1]["body"]
    assert b"secret" not in sent.messages[1]["body"]
    assert value(metrics, "ingress_unhandled_errors_total") == 1


async def test_headers_above_the_caps_are_a_431_problem() -> None:
    async def never(_: Scope, __: Receive, ___: Send) -> None:
        raise AssertionError

    many, _ = await run(never, scope([(b"a", b"b")] * 101))
    large, _ = await run(never, scope([(b"a", b"b" * (MAX_HEADER_BYTES + 1))]))

    long_type, _ = await run(never, scope([(b"content-type", b'a/b;c="' + b";" * MAX_CONTENT_TYPE_BYTES)]))

    assert (many.status, large.status, long_type.status) == (431, 431, 431)


async def test_responses_are_counted_by_route_and_status() -> None:
    async def fine(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    _, metrics = await run(fine, scope())

    assert value(metrics, "ingress_requests_total", method="GET", route="none", status="204") == 1


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-length", b"2"), (b"transfer-encoding", b"chunked")],
        [(b"content-type", b"application/json"), (b"content-type", b"text/plain")],
        [(b"content-encoding", b"identity"), (b"content-encoding", b"gzip")],
    ],
)
async def test_a_body_that_is_described_twice_is_400_and_the_connection_ends(
    headers: list[tuple[bytes, bytes]],
) -> None:
    async def never(_: Scope, __: Receive, ___: Send) -> None:
        raise AssertionError

    sent, _ = await run(never, scope(headers))

    assert sent.status == 400
    assert (b"connection", b"close") in sent.messages[0]["headers"]


@pytest.mark.parametrize(("status", "left"), [(202, 6), (503, 7)])
async def test_an_answer_has_the_tokens_left_and_a_retry_later_uses_none(status: int, left: int) -> None:
    async def answer(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [(b"a", b"b")]})
        await send({"type": "http.response.body", "body": b""})

    async def give_back() -> Level:
        return Level(7, 8.0)

    request = scope()
    request[DRAWN_KEY] = Drawn("writes", Limit(8, 60), Level(6, 15.0), give_back)
    sent, _ = await run(answer, request)

    headers = dict(sent.messages[0]["headers"])
    assert headers[b"a"] == b"b"
    assert headers[b"ratelimit"].startswith(f'"writes";r={left};'.encode())


async def test_no_cookie_reaches_what_would_parse_it() -> None:
    seen: list[Scope] = []

    async def application(given: Scope, _: Receive, send: Send) -> None:
        seen.append(given)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    kept = (b"accept", b"*/*")
    sent, _ = await run(application, scope([(b"cookie", b'a="' + b'\\"' * 15_000), kept, (b"cookie", b"b=c")]))

    assert sent.status == 200
    assert seen[0]["headers"] == [kept]


async def test_cookies_count_towards_the_cap_of_headers() -> None:
    async def application(_: Scope, __: Receive, ___: Send) -> None:
        raise AssertionError("nothing of it may get here")

    sent, _ = await run(application, scope([(b"cookie", b"a" * (MAX_HEADER_BYTES + 1))]))

    assert sent.status == 431
