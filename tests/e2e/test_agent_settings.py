"""The agent's settings in real processes: models by role, a fallback, rounds by bundle, several actions in a reply."""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from helpers.forks import ForkingSpawn
from helpers.homes import copy_home

from everturn_client.client import EverturnClient
from everturn_local.supervision.platform import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


def act(**fields: Any) -> str:
    return f"<channel:action>{json.dumps(fields)}</channel:action>"


def write(path: str, content: str) -> str:
    params = {"path": path, "channel": "canvas", "kind": "file", "content": content}
    return act(action="call_tool", notes="Writing.", tool_call={"tool_id": "react.write", "params": params})


def plan(*steps: str) -> str:
    params = {"mode": "new", "steps": list(steps)}
    return act(action="call_tool", notes="", tool_call={"tool_id": "react.plan", "params": params})


def final(text: str) -> str:
    return act(action="complete", notes="", final_answer=text)


def script(when: str, *replies: str, then: str = "stop") -> str:
    rounds = (f"[[scripts.rounds]]\nthen = '{then}'\nreply = '''{reply}'''\n" for reply in replies)
    return f"[[scripts]]\nwhen = '{when}'\n" + "".join(rounds)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def configured(tmp_path_factory: pytest.TempPathFactory, make_harness: Any) -> AsyncIterator[Any]:
    """A platform whose operator has a configuration file."""
    home, files = copy_home(tmp_path_factory.mktemp("platform")), tmp_path_factory.mktemp("files")
    decisions, fallback = files / "decisions.toml", files / "fallback.toml"
    titles, config = files / "titles.toml", files / "everturn.toml"
    decisions.write_text(
        script(
            "several",
            write("files/a.md", "aaa") + write("files/b.md", "bbb") + write("files/a.md", "ccc"),
            final("A and B."),
        )
        + script("planned", plan("one", "two") + final("Planned."))
        + script("limited", write("files/a.md", "aaa"), final("As far as I got."))
        + script("down", "", then="fail_for_good")
    )
    fallback.write_text(script("", final("The fallback answers.")))
    titles.write_text(script("", "A title from the small model"))
    config.write_text(
        f'[models.roles]\ndecision = "scripted:{decisions}"\ntitle = "scripted:{titles}"\n'
        '[bundles.short]\ntitle = "Short work"\ninstructions = "Be short."\nstarters = ["Begin"]\n'
        "[bundles.short.config.react]\nmax_iterations = 1\n"
    )
    env = {
        "EVERTURN_MODEL": f"scripted:{fallback}",
        "EVERTURN_FALLBACK_MODEL": f"scripted:{fallback}",
        "EVERTURN_CONFIG": str(config),
        "AI_REACT_AGENT_MULTI_ACTION": "safe_fanout",
    }
    async with Platform(home, ingresses=2, workers=1, env=env, durable=False, spawn=ForkingSpawn()) as platform:
        opened = make_harness(platform)
        for client in opened.clients:
            await wait_for_bundles(client, 2)
        yield opened
        await opened.quit()


async def wait_for_bundles(client: EverturnClient, count: int) -> None:
    """A worker publishes its bundles some seconds after its start, and each ingress reads them once a second."""
    found = 0
    async with asyncio.timeout(30):
        while found < count:
            await asyncio.sleep(0.2)
            found = len(await client.list_agents())


async def run(harness: Any, text: str, bundle_id: str | None = None) -> Any:
    sent = await harness.clients[0].send_message("new", text, bundle_id=bundle_id)
    watcher = harness.watch(sent.conversation_id)
    await watcher.wait_ended(sent.turn_id)
    state = await harness.check_invariants(sent.conversation_id, watcher)
    await harness.close()
    return state


async def test_several_actions_run_and_the_refused_one_does_not(configured: Any) -> None:
    state = await run(configured, "several files, please")

    (turn,) = state.turns
    assert turn.answer == "A and B."
    assert [(text.artifact, text.text) for text in turn.texts if text.channel == "canvas"] == [
        ("files/a.md", "aaa"),
        ("files/b.md", "bbb"),
    ]
    assert turn.rounds == 2


async def test_an_answer_beside_a_plan_ends_the_turn_in_one_round(configured: Any) -> None:
    (turn,) = (await run(configured, "planned work, please")).turns

    assert (turn.answer, turn.rounds) == ("Planned.", 1)
    assert [step.status for step in turn.steps] == ["completed"]
    assert len(turn.plans) == 1


async def test_the_title_comes_from_the_model_for_titles(configured: Any) -> None:
    state = await run(configured, "several files once more")

    assert state.conversation.title == "A title from the small model"


async def test_a_bundle_has_rounds_of_its_own(configured: Any) -> None:
    sent = await configured.clients[0].send_message("new", "limited work", bundle_id="short")
    watcher = configured.watch(sent.conversation_id)
    limited = await watcher.wait_ended(sent.turn_id)
    await configured.close()
    (free,) = (await run(configured, "limited work")).turns

    # The script knows rounds only: where one is all there is, the closing call hears the first one again.
    assert limited.error is not None
    assert limited.error.type.endswith("no-closing-answer")
    assert limited.files == ()
    assert (free.outcome, free.answer, len(free.files)) == ("completed", "As far as I got.", 1)


async def everturn(harness: Any, *arguments: str) -> tuple[int, str]:
    """Run the command line on the first ingress; its exit code, and what it prints."""
    command = (sys.executable, "-m", "everturn_client.cli", "--url", harness.platform.urls[0], *arguments)
    running = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, stdin=DEVNULL)
    printed, _ = await asyncio.wait_for(running.communicate(), 60)
    return running.returncode or 0, printed.decode()


async def test_an_agent_is_listed_and_chosen_for_a_conversation(configured: Any) -> None:
    client = configured.clients[0]

    own, short = await client.list_agents()
    listed = await everturn(configured, "agents")
    begun = await everturn(configured, "chat", "--agent", "short", "limited work")
    (latest,) = (await client.list_conversations(limit=1)).items
    refused = await everturn(configured, "chat", "--agent", "shrot", "Hi")

    assert (own.id, own.is_default, short.title, short.starters) == ("default", True, "Short work", ("Begin",))
    assert listed == (0, "* default  Everturn\n  short    Short work\n")
    assert (begun[0], latest.bundle_id) == (1, "short"), begun
    assert refused[0] == 2 and "There is no agent shrot that you can use" in refused[1]


async def test_the_fallback_answers_when_the_deciding_model_is_down(configured: Any) -> None:
    (turn,) = (await run(configured, "Hello there, everything down?")).turns

    assert (turn.outcome, turn.answer) == ("completed", "The fallback answers.")
