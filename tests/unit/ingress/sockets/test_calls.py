"""Payloads of calls, before a service sees them."""

import pytest

from ingress.admission.idempotency import try_read_key
from ingress.errors import ProblemError
from ingress.sockets.calls import build_headers, check_form, check_no_bytes
from ingress.sockets.schemas import TargetIn


def test_a_payload_that_is_no_form_names_its_field() -> None:
    with pytest.raises(ProblemError) as refused:
        check_form(TargetIn, {"conversation_id": 1})

    assert refused.value.errors[0]["field"] == "body.conversation_id"


def test_attachments_outside_of_files_are_refused_by_their_place() -> None:
    check_no_bytes({"a": ["text", 1, None]})

    with pytest.raises(ProblemError, match=r"body.event.payload.0 is binary"):
        check_no_bytes({"event": {"payload": [b"x"]}})


def test_a_key_means_what_it_means_in_the_header() -> None:
    assert try_read_key(build_headers("key-1")) == "key-1"
    assert try_read_key(build_headers(None)) is None
    for bad in ("", "ä", "a\nb", "x" * 202):
        with pytest.raises(ProblemError):
            try_read_key(build_headers(bad))
