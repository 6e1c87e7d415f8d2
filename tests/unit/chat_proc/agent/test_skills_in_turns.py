"""Skills through whole turns: read, cited in the answer, and kept for the next turn."""

import pytest
from turn_harness.checks import check_conversation
from turn_harness.replies import answer, call
from turn_harness.seed_calls import build_bench, offer_all

from chat_proc.skills.reader import read_skills
from everturn.timeline.blocks import CompletionBody, ToolResultBody

SKILLS = read_skills(
    {
        "skills/public-law/refunds/SKILL.md": b"---\nname: refunds\ndescription: x\n---\nPay within 14 days [[S:1]].",
        "skills/public-law/refunds/sources.yaml": b"sources: [{url: 'https://law.example/', title: The law}]",
    }
)
REF = "sk:public-law.refunds/SKILL.md"


@pytest.mark.parametrize("written", [REF, "sk:public-law.refunds"])
async def test_an_answer_cites_the_source_of_a_skill_that_the_turn_read(written: str) -> None:
    bench = build_bench(call("react.read", {"paths": [written]}), answer("Within 14 days [[S:1]]."))
    offer_all(bench, (), SKILLS)
    await bench.say("When?")

    await bench.work()

    await check_conversation(bench)
    (result,) = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert result.status == "ok" and result.whole is None
    assert "Pay within 14 days [[S:1]]." in result.text
    (body,) = [block.body for block in bench.blocks if isinstance(block.body, CompletionBody)]
    assert body.shown == "Within 14 days [The law](https://law.example/)."
    assert [source.url for source in body.citations] == ["https://law.example/"]


async def test_the_next_turn_is_pointed_to_the_skill_that_it_still_sees() -> None:
    read = call("react.read", {"paths": [REF]})
    bench = build_bench(read, answer("Done."), read, answer("Again."))
    offer_all(bench, (), SKILLS)
    for text in ("First", "Second"):
        await bench.say(text)
        await bench.work()

    await check_conversation(bench)
    first, second = [block.body for block in bench.blocks if isinstance(block.body, ToolResultBody)]
    assert "Pay within 14 days" in first.text
    assert "already shown in full in the result tc:" in second.text
