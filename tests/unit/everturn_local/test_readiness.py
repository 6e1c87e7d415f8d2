"""Waiting until what was started is ready."""

from collections.abc import Callable
from functools import partial

import pytest

from everturn_local.ports import load_free_port
from everturn_local.readiness import build_url, load_readiness, wait_ready

PART = {"ok": True, "detail": ""}
Serve = Callable[..., str]


def test_it_is_ready_with_all_its_workers(serve: Serve):
    few = {"parts": {"redis": PART}, "workers": [{}]}
    all_of_them = {"parts": {"redis": PART, "antivirus": {"ok": False, "detail": "away"}}, "workers": [{}, {}]}
    url = serve((503, {}), (200, few), (200, all_of_them))

    found = wait_ready(partial(load_readiness, url, 2), limit_s=60)

    assert (found.missing, found.failing) == ("", ["antivirus: away"])


def test_missing_parts_are_reported_at_the_end(serve: Serve):
    url = serve((200, {"parts": {}, "workers": None}))

    assert wait_ready(partial(load_readiness, url, 2), limit_s=0).missing == "0 of 2 workers are running."


def test_no_answer_and_an_unreadable_one_are_not_ready(serve: Serve):
    url = f"http://127.0.0.1:{load_free_port()}"

    assert url in load_readiness(url, 1).missing
    assert "503" in load_readiness(serve((503, {"parts": {}})), 1).missing


def test_the_part_that_keeps_it_from_being_ready_is_named(serve: Serve):
    url = serve((503, {"parts": {"redis": PART, "objects": {"ok": False, "detail": "no such bucket"}}, "workers": []}))

    assert load_readiness(url, 0).missing == f"{url} is not ready: objects: no such bucket."


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("fe80::1", "http://[fe80::1]:80"),
    ],
)
def test_a_wildcard_address_is_reached_by_loopback(bind: str, url: str):
    assert build_url(bind, 80) == url
