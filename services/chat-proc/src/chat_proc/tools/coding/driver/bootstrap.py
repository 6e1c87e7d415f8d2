"""Runs one task of a coding agent: unpacks its project and its home, starts it, and saves what it changes."""

import asyncio
import json
from pathlib import Path
from typing import Final, Protocol

from driver.link import Link, Order, Worker
from driver.model_server import open_model_server
from driver.state import State

PROJECT: Final = Path("project")
HOME: Final = Path("home")


class RunAgent(Protocol):
    """Runs the agent until it has done its task, or has to stop. Returns what it says at the end."""

    async def __call__(self, order: Order, link: Link, project: Path, home: Path, model_url: str) -> str: ...


def find_agent(runtime: str) -> RunAgent:
    """How the agent is run. The libraries of others need not be installed."""
    if runtime == "claude-code":
        from driver.claude_code import run_claude_code

        return run_claude_code
    from driver.acp_agent import run_acp_agent

    return run_acp_agent


async def drive(worker: Worker) -> None:
    """`worker` are the tools of this run. A failure of the agent is an event, not an exception of this program."""
    state = State(PROJECT, HOME)
    state.unpack(Path("project.tar"), Path("state.tar"))
    order, run_agent = load_order(state.session)
    async with Link(worker, state) as link, open_model_server() as model_url:
        await link.watch(asyncio.create_task(run_agent(order, link, PROJECT.resolve(), HOME.resolve(), model_url)))


def load_order(session: str) -> tuple[Order, RunAgent]:
    """What to do in this session, and how the agent is run."""
    order = Order(session=session, **json.loads(Path("order.json").read_text("utf-8")))
    return order, find_agent(order.runtime)
