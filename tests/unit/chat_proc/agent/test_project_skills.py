"""Skills of a project through whole turns: in the prompt, read, replaced under a turn, and deleted."""

import asyncio

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from turn_harness.checks import check_conversation
from turn_harness.harness import Bench, BenchWorker
from turn_harness.replies import answer, call
from turn_harness.seed_calls import build_bench, offer_all

from chat_proc.skills.projects import MAX_KEPT_REVISIONS, ProjectSkills
from chat_proc.skills.reader import read_skills
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal
from everturn.skills.archive import pack_skill
from everturn.timeline.blocks import ToolResultBody, TurnHeaderBody
from everturn_testing.turns.harness import ANN

REF = "sk:project.refunds/SKILL.md"
READ = call("react.read", {"paths": [REF]})


def archive(says: str, name: str = "refunds") -> bytes:
    front = f"---\nname: {name}\ndescription: About {name}.\n---\n"
    return pack_skill({"SKILL.md": f"{front}{says}".encode()})


class Source:
    """Implements ProjectSkillSource: the archives of each revision."""

    def __init__(self, *revisions: dict[str, bytes]) -> None:
        self._revisions = revisions
        self.loaded: list[int] = []
        self.errors: list[Exception] = []

    async def load_revision(self, principal: Principal, revision: int) -> tuple[tuple[str, bytes], ...]:
        self.loaded.append(revision)
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop()
        return tuple(self._revisions[revision - 1].items())


def hire(bench: Bench, source: Source, failpoint: str = "") -> BenchWorker:
    worker = bench.hire(failpoint=failpoint)
    worker.change(project_skills=ProjectSkills(source))
    return worker


def results(bench: Bench) -> list[str]:
    return [block.body.text for block in bench.blocks if isinstance(block.body, ToolResultBody)]


def revisions(bench: Bench) -> list[int | None]:
    return [block.body.skills_revision for block in bench.blocks if isinstance(block.body, TurnHeaderBody)]


async def test_each_turn_has_the_skills_of_the_revision_with_which_it_begins() -> None:
    bench = build_bench(*[reply for _ in range(4) for reply in (READ, answer("Done."))])
    own = read_skills({"skills/desk/tone/SKILL.md": b"---\nname: tone\ndescription: Tone.\n---\nBe kind."})
    offer_all(bench, (), own)
    source = Source({"refunds": archive("Version 1.")}, {"refunds": archive("Version 2.")}, {})
    worker = hire(bench, source)

    for revision in range(4):
        bench.platform.skills_revision = revision
        await bench.say("When?")
        await worker.work()

    await check_conversation(bench)
    none, first, second, deleted = results(bench)
    assert "this agent has no such skill; its skills are desk.tone" in none
    assert "Version 1." in first and "Version 2." in second
    assert "its skills are desk.tone" in deleted
    assert revisions(bench) == [None, 1, 2, 3]
    prompts = [str(request.messages[0]) for request in bench.model.requests]
    assert ["- sk:project.refunds: About refunds." in prompt for prompt in prompts[::2]] == [False, True, True, False]
    assert all("- sk:desk.tone: Tone." in prompt for prompt in prompts[2:6])
    assert source.loaded == [1, 2, 3]


async def test_a_worker_that_takes_over_has_the_skills_with_which_the_turn_began() -> None:
    bench = build_bench(READ, answer("Done."))
    source = Source({"refunds": archive("Version 1.")}, {"refunds": archive("Version 2.")})
    bench.platform.skills_revision = 1
    await bench.say("When?")

    await hire(bench, source, "turn.opened:1:raise").work()
    bench.platform.skills_revision = 2
    bench.expire_lease()
    await hire(bench, source).work()

    await check_conversation(bench)
    (result,) = results(bench)
    assert "Version 1." in result
    assert (revisions(bench), source.loaded) == ([1], [1, 1])


async def test_a_skill_that_can_not_be_read_costs_the_turn_only_this_skill() -> None:
    bench = build_bench(READ, answer("Done."))
    bad = {"a": b"no archive", "b": archive("x", name="other"), "c": pack_skill({"x.py": b""})}
    bench.platform.skills_revision = 1
    await bench.say("When?")
    counter = "everturn_project_skills_unreadable_total"
    before = REGISTRY.get_sample_value(counter) or 0

    with capture_logs() as logs:
        await hire(bench, Source(bad | {"refunds": archive("Version 1.")})).work()

    assert "Version 1." in results(bench)[0]
    reported = [line for line in logs if line["event"] == "A skill of a project can't be read"]
    assert [(line["skill"], line["log_level"]) for line in reported] == [("a", "error"), ("b", "error"), ("c", "error")]
    assert REGISTRY.get_sample_value(counter) == before + 3


async def test_a_database_that_is_away_is_asked_again() -> None:
    bench = build_bench(READ, answer("Done."))
    bench.platform.skills_revision = 1
    await bench.say("When?")
    source = Source({"refunds": archive("Version 1.")})
    source.errors.append(Unavailable("away"))

    await hire(bench, source).work()

    assert "Version 1." in results(bench)[0]
    assert source.loaded == [1, 1]


async def test_turns_at_once_load_a_revision_once_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(*[{"refunds": archive(f"Version {n}.")} for n in range(MAX_KEPT_REVISIONS + 1)])
    skills = ProjectSkills(source)

    found = await asyncio.gather(*[skills.load(ANN, 1) for _ in range(5)])
    assert source.loaded == [1] and len(set(map(id, found))) == 1

    for revision in range(2, MAX_KEPT_REVISIONS + 2):
        await skills.load(ANN, revision)
    await skills.load(ANN, MAX_KEPT_REVISIONS + 1)
    await skills.load(ANN, 1)
    assert source.loaded == [*range(1, MAX_KEPT_REVISIONS + 2), 1]
    assert not await skills.load(ANN, 0) and not await ProjectSkills().load(ANN, 7)

    monkeypatch.setattr("chat_proc.skills.projects.MAX_KEPT_BYTES", 1)
    large = ProjectSkills(source)
    await large.load(ANN, 1)
    await large.load(ANN, 1)
    assert source.loaded[-2:] == [1, 1]


async def test_a_project_that_loads_slowly_delays_no_other() -> None:
    release, is_waiting = asyncio.Event(), asyncio.Event()

    class Slow(Source):
        async def load_revision(self, principal: Principal, revision: int) -> tuple[tuple[str, bytes], ...]:
            if principal.project == "slow":
                is_waiting.set()
                await release.wait()
            return await super().load_revision(principal, revision)

    skills = ProjectSkills(Slow({"refunds": archive("Pay.")}))
    waiting = asyncio.create_task(skills.load(Principal("acme", "slow", "ann"), 1))
    await is_waiting.wait()

    loaded = await asyncio.wait_for(skills.load(Principal("acme", "fast", "ann"), 1), 10)

    assert not waiting.done() and len(loaded) == 1
    release.set()
    await waiting
