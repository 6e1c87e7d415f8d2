"""Records of model calls can be read back, and contain no secrets."""

import gzip
from dataclasses import replace

import pytest

from chat_proc.model_gateway.exchanges import Exchange, ExchangeHead, build_record, read_record
from everturn.core.errors import Invalid
from everturn.core.logging import Redactor
from everturn.turns.model import UsageEvent

HEAD = ExchangeHead(
    run="exec_1.ab",
    number=3,
    path="/v1/messages",
    asked="sonnet",
    model="m",
    sent_at="2026-03-01T12:00:00.000Z",
    status=200,
    media_type="text/event-stream",
    end="complete",
    answered_ms=5,
    ended_ms=9,
    request_bytes=5,
    kept_bytes=3,
    reply_bytes=7,
    usage=UsageEvent("m", "coding", 1, 2, 0, 0, 0.5, estimated=False),
)
EXCHANGE = Exchange(HEAD, b'{"a"}', b"\n\xff\n")


def test_a_record_is_read_back_byte_for_byte() -> None:
    assert read_record(build_record(EXCHANGE, Redactor())) == EXCHANGE


def test_a_record_has_no_secrets_and_still_fits_its_head() -> None:
    leaking = replace(EXCHANGE, request=b"the key is secret-of-operator.", reply=b"secret-of-operator")

    record = build_record(leaking, Redactor(["secret-of-operator"]))

    assert b"secret-of-operator" not in gzip.decompress(record)
    kept = read_record(record)
    assert (kept.request, kept.reply) == (b"the key is [redacted].", b"[redacted]")
    assert (kept.head.request_bytes, kept.head.kept_bytes) == (22, 10)


@pytest.mark.parametrize(
    "record", [b"", b"{}", gzip.compress(b"no head"), build_record(EXCHANGE, Redactor())[:-9], gzip.compress(b"{}\n")]
)
def test_what_is_no_record_is_invalid(record: bytes) -> None:
    with pytest.raises(Invalid):
        read_record(record)


def test_a_record_that_unpacks_to_gigabytes_is_invalid() -> None:
    with pytest.raises(Invalid):
        read_record(gzip.compress(HEAD.model_dump_json().encode() + b"\n" + bytes(80 << 20)))
