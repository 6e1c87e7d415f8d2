"""A tool that needs approval, in real processes: answers count once, whatever process dies, even if none is running."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.forks import WORKER_BOUNDS, ForkingSpawn
from helpers.homes import copy_home
from helpers.sockets import SocketClient
from helpers.waiting import wait_until

from everturn_client.errors import ProblemError
from everturn_local.servers.databases import DATABASE
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]
WORKER = "worker-1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asking(tmp_path_factory: pytest.TempPathFactory, make_harness: Any) -> AsyncIterator[tuple[Any, Any, Path]]:
    """A harness, its platform, and the file in which each sent mail is one line."""
    home, files = copy_home(tmp_path_factory.mktemp("platform")), tmp_path_factory.mktemp("files")
    script, tools, config, sent = (files / name for name in ("script.toml", "mail.py", "everturn.toml", "sent.txt"))
    call = {"action": "call_tool", "notes": "", "tool_call": {"tool_id": "mail.send", "params": {"to": "ann"}}}
    done = {"action": "complete", "notes": "", "final_answer": "That is settled."}
    rounds = "".join(
        f"[[scripts.rounds]]\nreply = '''<channel:action>{json.dumps(act)}</channel:action>'''\n"
        for act in (call, done)
    )
    script.write_text(f"[[scripts]]\nwhen = ''\n{rounds}")
    tools.write_text(
        f'def send(to: str) -> str:\n    """Sends a mail."""\n'
        f"    with open({str(sent)!r}, 'a') as file:\n        file.write(to + '\\n')\n    return 'sent'\n"
    )
    config.write_text(f'[[tools]]\nalias = "mail"\nfile = "{tools}"\n[tools.tools.send]\nrequires_approval = true\n')
    env = {
        "EVERTURN_MODEL": f"scripted:{script}",
        "EVERTURN_CONFIG": str(config),
        WORKER_BOUNDS: '{"lease_s": 2, "orphans_after_s": 4}',
        "APPROVAL_TIMEOUT_S": "3600",
    }
    async with Platform(
        home, ingresses=1, workers=1, env=env, durable=False, auto_restart=False, spawn=ForkingSpawn()
    ) as platform:
        opened = make_harness(platform)
        yield opened, platform, sent
        await opened.quit()


async def ask(harness: Any) -> tuple[Any, Any, str]:
    """A turn that waits for a person: the receipt, the watchers, and the approval."""
    accepted = await harness.clients[0].send_message("new", "Send the mail.")
    watcher = harness.watch(accepted.conversation_id)

    def waits(seen: Any) -> bool:
        turn = seen.turn(accepted.turn_id)
        return turn is not None and turn.status == "waiting"

    await watcher.wait_until(waits)
    # Clients learn that it waits before its worker has released the lease.
    parked = f"SELECT status FROM turn WHERE id = '{accepted.turn_id}'"
    await wait_until(lambda: harness.platform.postgres.run_sql(parked, database=DATABASE) == "waiting")
    (approval,) = watcher.turn(accepted.turn_id).approvals
    assert (approval.tool_id, approval.params, approval.state) == ("mail.send", {"to": "ann"}, "pending")
    return accepted, watcher, approval.approval_id


async def kill_worker(platform: Any) -> None:
    """No worker runs until one is started again."""
    platform.kill(WORKER)
    assert await platform.wait_exit(WORKER) == -signal.SIGKILL


async def approve_and_kill(asking: Any, failpoint: str) -> Any:
    """The turn in the end, whose worker was killed there after a person had approved, with its history checked."""
    harness, platform, _ = asking
    accepted, watcher, approval_id = await ask(harness)
    await platform.restart(WORKER, extra_env={"FAILPOINT": f"{failpoint}:1:kill"})

    await harness.clients[0].answer_approval(accepted.conversation_id, approval_id, "approve")
    assert await platform.wait_exit(WORKER) == -signal.SIGKILL
    await platform.restart(WORKER)
    turn = await watcher.wait_ended(accepted.turn_id)

    assert (turn.answer, turn.approvals[0].state) == ("That is settled.", "approved")
    await harness.check_invariants(accepted.conversation_id, watcher)
    return turn


def mails(sent: Path) -> int:
    return len(sent.read_text().splitlines()) if sent.exists() else 0


async def test_an_answer_without_a_live_worker_is_found_later(asking: Any) -> None:
    harness, platform, sent = asking
    before = mails(sent)
    accepted, watcher, approval_id = await ask(harness)
    await kill_worker(platform)

    first = await harness.clients[0].answer_approval(accepted.conversation_id, approval_id, "approve")
    again = await harness.clients[0].answer_approval(accepted.conversation_id, approval_id, "approve")
    with pytest.raises(ProblemError) as refused:
        await harness.clients[0].answer_approval(accepted.conversation_id, approval_id, "deny")
    await platform.restart(WORKER)
    turn = await watcher.wait_ended(accepted.turn_id)

    assert again.signal_id == first.signal_id
    assert refused.value.problem.status == 409
    assert mails(sent) == before + 1
    assert (turn.answer, turn.approvals[0].state) == ("That is settled.", "approved")
    assert [(signal.kind, signal.state) for signal in turn.signals] == [("approve", "applied")]
    await harness.check_invariants(accepted.conversation_id, watcher)
    await harness.close()


@pytest.mark.parametrize(
    ("failpoint", "sent_once"), [("turn.approved", False), ("turn.in_tool", False), ("turn.before_c2", True)]
)
async def test_an_irreversible_call_is_not_repeated_after_a_kill(
    asking: Any, failpoint: str, *, sent_once: bool
) -> None:
    """Before the tool runs, and after it ran but before its result is stored: these can't be distinguished."""
    harness, _, sent = asking
    before = mails(sent)

    turn = await approve_and_kill(asking, failpoint)

    assert mails(sent) == before + sent_once
    assert [(step.status, step.error) for step in turn.steps] == [("error", "ambiguous")]
    await harness.close()


async def test_an_approved_call_runs_once_if_its_worker_is_killed_after(
    asking: Any,
) -> None:
    harness, _, sent = asking
    before = mails(sent)

    turn = await approve_and_kill(asking, "turn.after_c2")

    assert mails(sent) == before + 1
    assert [(step.status, step.error) for step in turn.steps] == [("completed", None)]
    await harness.close()


async def test_a_question_is_asked_and_answered_over_a_socket(asking: Any) -> None:
    harness, platform, sent = asking
    before = mails(sent)
    socket = await SocketClient(platform.urls[0]).connect()
    try:
        said = (await socket.call("chat_message", {"conversation_id": "new", "text": "Send the mail."}))["body"]
        conversation_id = said["conversation_id"]
        await socket.call("conv_subscribe", {"conversation_id": conversation_id, "after": "0-0"})
        asked = (await socket.until("chat_approval"))["data"]
        answer = {"conversation_id": conversation_id, "kind": "approve", "approval_id": asked["approval_id"]}

        accepted = (await socket.call("chat_signal", answer))["body"]
        refused = await socket.call("chat_signal", {**answer, "kind": "deny"})
        settled = (await socket.until("chat_approval"))["data"]
        ended = (await socket.until("chat_complete"))["data"]
    finally:
        await socket.sio.disconnect()

    assert (asked["tool_id"], asked["params"], asked["state"]) == ("mail.send", {"to": "ann"}, "pending")
    assert (accepted["turn_id"], accepted["receipt"]["state"]) == (said["turn_id"], "accepted")
    assert refused["status"] == 409
    assert (settled["approval_id"], settled["state"]) == (asked["approval_id"], "approved")
    assert ended["answer"] == "That is settled."
    assert mails(sent) == before + 1
    await harness.check_invariants(conversation_id)


async def test_a_denied_call_is_not_made(asking: Any) -> None:
    harness, _, sent = asking
    before = mails(sent)
    accepted, watcher, approval_id = await ask(harness)

    await harness.check_invariants(accepted.conversation_id, watcher, parked=True)
    await harness.clients[0].answer_approval(accepted.conversation_id, approval_id, "deny", "Not today.")
    turn = await watcher.wait_ended(accepted.turn_id)

    assert mails(sent) == before
    assert (turn.approvals[0].state, turn.approvals[0].reason) == ("denied", "Not today.")
    await harness.check_invariants(accepted.conversation_id, watcher)
    await harness.close()


async def test_a_cancel_ends_the_wait(asking: Any) -> None:
    harness, _, sent = asking
    before = mails(sent)
    accepted, watcher, _ = await ask(harness)

    await harness.clients[0].send_signal(accepted.conversation_id, "cancel")
    turn = await watcher.wait_ended(accepted.turn_id)

    assert mails(sent) == before
    assert (turn.status, turn.approvals[0].state) == ("cancelled", "withdrawn")
    await harness.check_invariants(accepted.conversation_id, watcher)
    await harness.close()


async def test_a_wait_ends_by_itself_also_when_its_worker_came_later(asking: Any) -> None:
    harness, platform, sent = asking
    before = mails(sent)
    accepted, watcher, _ = await ask(harness)
    await kill_worker(platform)
    over = "UPDATE approval SET expires_at = clock_timestamp() WHERE state = 'pending'"
    await asyncio.to_thread(platform.postgres.run_sql, over, database=DATABASE)

    await platform.restart(WORKER)
    turn = await watcher.wait_ended(accepted.turn_id)

    assert mails(sent) == before
    assert (turn.answer, turn.approvals[0].state) == ("That is settled.", "expired")
    await harness.close()
