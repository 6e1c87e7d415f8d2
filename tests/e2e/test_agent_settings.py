"""The agent's settings in real processes: models by role, a fallback, rounds by bundle, several actions in a reply."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from helpers.forks import ForkingSpawn
from helpers.homes import copy_home

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
        yield opened
        await opened.quit()


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


async def test_the_fallback_answers_when_the_deciding_model_is_down(configured: Any) -> None:
    (turn,) = (await run(configured, "Hello there, everything down?")).turns

    assert (turn.outcome, turn.answer) == ("completed", "The fallback answers.")
