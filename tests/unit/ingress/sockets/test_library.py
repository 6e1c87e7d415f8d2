"""python-socketio as it is set up."""

from typing import Any, cast

from ingress.sockets.library import build_library, refuse_connection


def test_only_websockets_are_spoken_and_messages_are_capped() -> None:
    library = cast(Any, build_library(max_bytes=1234))

    assert library.eio.transports == ["websocket"]
    assert library.eio.max_http_buffer_size == 1234


def test_a_refusal_carries_data_for_the_client() -> None:
    assert cast(Any, refuse_connection("No.", {"status": 401})).error_args == {
        "message": "No.",
        "data": {"status": 401},
    }
