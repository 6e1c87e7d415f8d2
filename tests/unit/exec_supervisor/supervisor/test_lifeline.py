"""The lifeline to the worker: a closed pipe is noticed, even behind unread bytes."""

import asyncio
import os
import socket

import pytest

from exec_supervisor.supervisor.lifeline import LifelineCut, watch_lifeline


async def test_a_closed_pipe_cuts_the_lifeline_although_bytes_are_unread():
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"unread")
    watching = asyncio.create_task(watch_lifeline(read_fd))
    await asyncio.sleep(0)

    os.close(write_fd)

    with pytest.raises(LifelineCut):
        await asyncio.wait_for(watching, 5)
    os.close(read_fd)


async def test_a_closed_socket_cuts_it_too():
    ours, theirs = socket.socketpair()
    theirs.close()

    with ours, pytest.raises(LifelineCut):
        await asyncio.wait_for(watch_lifeline(ours.fileno()), 5)


async def test_an_open_pipe_keeps_it():
    read_fd, write_fd = os.pipe()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watch_lifeline(read_fd), 0.3)
    os.close(read_fd)
    os.close(write_fd)
