"""Whatever an agent sends is refused with a sentence or passed on as it is, but for what the gateway decides."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_proc.model_gateway.formats import (
    AT_ONCE_BYTES,
    MAX_ELEMENTS,
    ROUTES,
    PreparedRequest,
    RequestRefused,
    Route,
    Target,
    prepare_request,
)
from chat_proc.models.upstreams import OPENAI_URL, Upstream

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["url", "base64", "image", "document", "file", "function", "input_image", "data:x", "priority"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "source", "content", "image_url", "file", "file_id", "x"]), inner)
    ),
    max_leaves=12,
)
READ = ["messages", "input", "system", "tools", "thinking", "service_tier", "n", "speed", "stream", "stream_options"]
DECIDED = {"model", "max_tokens", "max_completion_tokens", "max_output_tokens", "thinking", "stream_options", "store"}


def prepare(route: Route, body: bytes, url: str = "http://h") -> PreparedRequest:
    upstream = Upstream(route.protocol, url, {})
    return prepare_request(route, body, lambda _: Target("m", upstream, lambda tokens: min(tokens, 100), 100))


@given(st.sampled_from(list(ROUTES.values())), st.dictionaries(st.sampled_from([*READ, "max_tokens", "other"]), VALUES))
def test_any_json_is_refused_or_passed_on(route: Route, fields: dict[str, Any]) -> None:
    try:
        prepared = prepare(route, json.dumps({"model": "x", **fields}).encode())
    except RequestRefused as refused:
        assert refused.status == 400 and refused.message
        return

    sent = json.loads(prepared.body)
    assert sent["model"] == "m"
    assert {name: value for name, value in sent.items() if name not in DECIDED} == {
        name: value for name, value in fields.items() if name not in DECIDED
    }
    assert 0 <= prepared.max_tokens <= 100 and prepared.input_tokens > 0


@given(st.dictionaries(st.text(min_size=1, max_size=5), VALUES))
def test_large_bodies_are_read_like_small_ones(fields: dict[str, Any]) -> None:
    route, small = ROUTES["/v1/messages"], {"other": fields, "model": "x", "max_tokens": 5, "messages": []}
    filler = "ä\n" * (AT_ONCE_BYTES // 2)

    plain = prepare(route, json.dumps(small).encode())
    large = prepare(route, json.dumps({**small, "filler": filler}).encode())

    assert json.loads(large.body) == {**json.loads(plain.body), "filler": filler}


@pytest.mark.parametrize("body", [b'{"a":[%b1]}' % (b"1," * MAX_ELEMENTS), b'{"a":"%b"}' % (b"[" * (MAX_ELEMENTS + 1))])
def test_a_body_has_a_bounded_number_of_elements(body: bytes) -> None:
    with pytest.raises(RequestRefused, match="500,000 elements") as refused:
        prepare(ROUTES["/v1/messages"], body)

    assert refused.value.status == 413


@pytest.mark.parametrize("size", [10, AT_ONCE_BYTES])
@pytest.mark.parametrize("value", [b"[" * 20_000 + b"]" * 20_000, b"1e999", b"1" * 5_000, b"-Infinity", b'"\n"'])
def test_json_that_servers_read_differently_is_refused(value: bytes, size: int) -> None:
    body = b'{"model":"x","max_tokens":5,"y":"' + b"x" * size + b'","x":' + value + b"}"

    with pytest.raises(RequestRefused) as refused:
        prepare(ROUTES["/v1/messages"], body)

    assert refused.value.status == 400


def test_of_a_repeated_field_the_last_one_is_checked_and_sent() -> None:
    prepared = prepare(ROUTES["/v1/messages"], b'{"model":"a","model":"b","max_tokens":5,"max_tokens":7}')

    assert (prepared.asked, json.loads(prepared.body)) == ("b", {"model": "m", "max_tokens": 7})


@pytest.mark.parametrize(
    ("url", "given_tokens", "sent"),
    [
        (OPENAI_URL, {}, {"max_completion_tokens": 100}),
        ("http://h/v1", {}, {"max_tokens": 100}),
        (OPENAI_URL, {"max_tokens": 900}, {"max_tokens": 100}),
        (
            OPENAI_URL,
            {"max_completion_tokens": 9, "max_tokens": None},
            {"max_completion_tokens": 9, "max_tokens": None},
        ),
    ],
)
def test_the_length_of_a_reply_has_the_name_that_its_server_knows(
    url: str, given_tokens: dict[str, Any], sent: dict[str, Any]
) -> None:
    prepared = prepare(ROUTES["/v1/chat/completions"], json.dumps({"model": "x", **given_tokens}).encode(), url)

    assert json.loads(prepared.body) == {"model": "m", **sent}


def test_files_count_by_their_kind_and_not_by_their_bytes() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 700_000}}
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 700_000}}

    for path, part in (("/v1/messages", image), ("/v1/chat/completions", shown)):
        body = json.dumps({"model": "x", "max_tokens": 5, "messages": [{"role": "user", "content": [part] * 2}]})
        assert 3_200 < prepare(ROUTES[path], body.encode()).input_tokens < 3_400
