"""What attempts are made of: only a refusal counts as one, and whatever ends the process is seen."""

import errno
import json
import os

import pytest

from chat_proc.selftest.probes.attempts import (
    Denied,
    Group,
    Reached,
    Surroundings,
    call,
    load_surroundings,
    try_each,
    try_in_child,
    try_one,
)

AROUND = Surroundings("", "", 0, "", "", (), "a.b", ())


def test_an_attempt_that_returns_has_got_through_and_says_what_it_got():
    group = Group("doors")

    @group.attempt
    def open_a_door(around):
        return "a key"

    assert list(group.attempts) == ["open a door"]
    assert try_one(open_a_door, AROUND) == (False, "it got a key")


@pytest.mark.parametrize(
    ("error", "held"), [(PermissionError("no"), True), (Denied("nothing"), True), (Reached("the kernel"), False)]
)
def test_only_a_refusal_counts_as_one(error, held):
    def attempt(around):
        raise error

    assert try_one(attempt, AROUND) == (held, f"{type(error).__name__}: {error}" if held else str(error))


def test_a_call_that_the_kernel_itself_turns_down_has_reached_it():
    with pytest.raises(Reached):
        call("setns", -1, 0)


def test_the_first_that_gets_through_counts():
    def refuse():
        raise OSError(errno.EPERM, "no")

    assert try_each((refuse, lambda: "in")) == "in"
    with pytest.raises(OSError, match="no"):
        try_each((refuse, refuse))


def test_a_process_that_is_ended_was_denied():
    with pytest.raises(PermissionError, match="signal 9"):
        try_in_child(lambda: os.kill(os.getpid(), 9))


def test_the_surroundings_are_read_as_they_were_written(tmp_path):
    file = tmp_path / "surroundings.json"
    known = {"canary": "c", "neighbour": "n", "port": 1, "abstract": "a", "host_file": "/f", "engine_sockets": ["/s"]}
    file.write_text(json.dumps({**known, "granted": "a.b", "nonces": ["x"], "nonce": "", "gateway": "/g"}))

    assert load_surroundings(file) == Surroundings("c", "n", 1, "a", "/f", ("/s",), "a.b", ("x",), gateway="/g")
