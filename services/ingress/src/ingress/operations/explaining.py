"""`python -m ingress explain-turn ID`: explains to an operator where a turn is and what it waits for.

It needs DATABASE_OWNER_URL, the migrating role.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

from everturn.core.errors import NotFound
from everturn.turns.explaining import TurnState, WaitedRun
from ingress.operations.commands import OfflineCommand

LoadTurnState = Callable[[str], Coroutine[Any, Any, TurnState]]


def build_explain_command(load: LoadTurnState) -> OfflineCommand:
    """Build the command; `load` takes the id of a turn or of a conversation and raises NotFound."""

    def run(arguments: argparse.Namespace) -> int:
        try:
            state = asyncio.run(load(arguments.id))
        except NotFound:
            sys.stderr.write(f"{arguments.program}: There is no turn or conversation {arguments.id!r}.\n")
            return 1
        sys.stdout.writelines(f"{line}\n" for line in explain_turn(state))
        return 0

    return OfflineCommand("Explain where a turn is and what it waits for.", run, _add_turn)


def _add_turn(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="the id of a turn, or of a conversation for its newest turn")


def explain_turn(state: TurnState) -> Sequence[str]:
    """Lines for the operator: what the turn is doing or waits for, then the facts. Contains no text of people or
    models."""
    lines = [
        _find_reason(state),
        f"turn:         {state.id} of {state.conversation_id}",
        f"owner:        {state.user_id}, project {state.project}, tenant {state.tenant}, lane {state.lane}",
        f"status:       {state.status}, accepted {_show(state.created_at)}, started {_show(state.started_at)}, "
        f"ended {_show(state.ended_at)}",
        f"attempts:     {state.attempt} since its last commit; earlier leases held it for {state.leased_s:.0f} s",
    ]
    if state.owner is not None:
        lines.append(
            f"lease:        {state.owner}, fence {state.fence}, held for {state.held_s or 0:.0f} s, "
            f"{_show_expiry(state.expires_in_s or 0)}"
        )
    if state.block is not None:
        block = state.block
        lines.append(f"last commit:  {block.type}, round {block.round}, block {block.seq}, {block.age_s:.0f} s ago")
    lines += [f"open call:    {call.tool_id}, {call.effect}, {call.call_id}" for call in state.calls]
    lines += [f"approval:     {ask.tool_id}, {ask.call_id}, until {_show(ask.expires_at)}" for ask in state.questions]
    lines += [_explain_run(run) for run in state.runs]
    if state.status == "queued":
        lines.append(
            f"running:      {state.running} turns, {state.running_of_tenant} of its tenant, {state.running_of_user} of "
            "its user"
        )
    if state.signals:
        lines.append(f"signals:      {state.signals} not applied yet")
    if state.owner is not None and _is_held(state):
        lines += _explain_signal(state.owner)
    return lines


def _explain_run(run: WaitedRun) -> str:
    how = f"ended as {run.ended_as}" if run.ended_as else f"until {_show(run.ends_by)}"
    named = f"{run.engine} {run.task}" if run.task and run.engine != "worker" else run.engine
    return f"detached run: {run.call_id}, start {run.starts}, on {named}, {how}, watched by {run.holder}"


def _is_held(state: TurnState) -> bool:
    return state.status == "running" and (state.expires_in_s or 0) > 0


def _explain_signal(owner: str) -> Sequence[str]:
    """How to make this worker log what it does. A worker is named `<host>:<pid>`; in a container the host is the
    container's id or the name of the pod, and the worker is process 1."""
    host, _, pid = owner.partition(":")
    lines = ["If it does not move, make its worker log the open calls of its turns and where each of its tasks waits:"]
    if pid.isdigit() and pid != "1":
        return [*lines, f"  on {host}: kill -USR1 {pid}"]
    return [
        *lines,
        f"  Compose:    docker kill --signal=USR1 {host}",
        f"  Kubernetes: kubectl exec {host} -- sh -c 'kill -USR1 1'",
    ]


def _find_reason(state: TurnState) -> str:
    match state.status:
        case "queued" if state.rung_at is None:
            return (
                f"It is queued behind its tenant's share of the lane; turns on the lane: {state.ahead}. It gets a "
                "place when an earlier turn of the tenant starts."
            )
        case "queued":
            return (
                f"It is queued; turns ahead of it on its lane: {state.ahead}. If workers have free slots, it "
                "waits because its user or tenant has as many running turns as are allowed while others wait "
                "(USER_RUNNING_MAX; see 'running' below); otherwise add workers or slots."
            )
        case "waiting" if not state.questions and state.runs:
            return "It waits for a program that goes on without it. No worker holds it."
        case "waiting":
            return "It waits for a person's approval. No worker holds it. The wait ends at the deadline at the latest."
        case "running" if state.owner is None:
            return (
                "It is running, but no worker holds it: a sweeper enqueues it again within seconds if any workers "
                "are running."
            )
        case "running" if (state.expires_in_s or 0) <= 0:
            return (
                f"Its worker {state.owner} stopped renewing the lease. A sweeper enqueues it again if any workers "
                "are running."
            )
        case "running":
            return f"Worker {state.owner} runs it. Search its log for the turn_id."
        case _ if state.announced_at is None:
            return (
                "It has ended, but its end has not been published yet. A sweeper publishes it if any workers are "
                "running."
            )
        case _:
            return f"It has ended: {state.outcome or state.status}." + (f" {state.error}" if state.error else "")


def _show(time: datetime | None) -> str:
    return "not yet" if time is None else time.isoformat(timespec="seconds")


def _show_expiry(expires_in_s: float) -> str:
    return f"expires in {expires_in_s:.0f} s" if expires_in_s > 0 else f"expired {-expires_in_s:.0f} s ago"
