"""The work of a turn: its plan, sources, files as they are written, usage, and the inspector."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from browsing.person import Person
from browsing.replies import SALES
from browsing.seeds import add_source
from playwright.async_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

PAGE = "https://example.org/sales?a=1"
LONG_MESSAGE = "The totals by region differ less than expected, north leads and south follows. " * 200
MAX_TURNS = 10
"""Enough of these messages to exceed the model's context."""


async def test_a_plan_shows_its_progress(person: Person) -> None:
    await person.send("script:plan please")
    plan = person.page.get_by_role("region", name="Plan")

    await expect(plan.get_by_role("listitem")).to_have_text(
        ["look at the files", "write the note", "tell what it says"]
    )
    await expect(plan).to_contain_text("1 of 3 done")
    await expect(plan.locator("[aria-current=step]")).to_have_text("write the note")
    await person.finish()
    await expect(plan).to_contain_text("2 of 3 done")
    await expect(plan.get_by_role("img")).to_have_count(3)
    assert [await mark.get_attribute("aria-label") for mark in await plan.get_by_role("img").all()] == [
        "done",
        "done",
        "in progress",
    ]


async def test_citations_lead_to_their_sources(person: Person, harness: Any) -> None:
    await person.send("script:plain please")
    await person.finish()
    conversation_id = await person.read_conversation_id()
    for sid, title, url in ((1, "Sales of the year", PAGE), (2, "<b>Nobody knows</b>", "https://example.com/why")):
        await asyncio.to_thread(add_source, harness.platform, conversation_id, sid=sid, title=title, url=url)

    await person.send("script:cite please")

    await expect(person.reply.get_by_role("link", name="Source 1: Sales of the year")).to_have_attribute("href", PAGE)
    await person.finish()
    sources = person.reply.get_by_role("region", name="Sources").get_by_role("link")
    await expect(sources).to_have_count(2)
    await expect(sources.first).to_contain_text("example.org · 2026-01-15")
    await expect(sources.last).to_contain_text("<b>Nobody knows</b>")
    assert [await link.get_attribute("rel") for link in await sources.all()] == ["noopener noreferrer"] * 2


async def test_a_file_is_shown_beside_the_conversation_while_written(person: Person) -> None:
    await person.send("script:note please")

    await person.reply.get_by_role("button", name="Open outputs/note.md").first.click()
    panel = person.page.get_by_role("complementary", name="outputs/note.md")
    await expect(panel.get_by_role("heading", name="Note", exact=True)).to_be_visible()
    await person.finish()

    await expect(panel).to_contain_text("Written once, shown once.")
    await panel.get_by_role("button", name="Source").click()
    await expect(panel).to_contain_text("Written *once*")


async def test_a_turn_shows_its_usage_and_what_the_model_saw(person: Person) -> None:
    await person.send("script:note please")
    await person.finish()
    await person.button("Details").click()
    await expect(person.reply).to_contain_text("2 rounds")
    await expect(person.reply).to_contain_text("240 tokens")

    await person.button("Show what the model saw").click()

    panel = person.page.get_by_role("complementary", name="What the model saw")
    parts = panel.get_by_role("list", name="Parts of the request").get_by_role("button")
    await expect(parts.first).to_be_visible()
    await expect(panel.get_by_role("combobox", name="Round")).to_have_value("2")
    in_second = await parts.count()
    await panel.get_by_role("combobox", name="Round").select_option("1")
    await expect(panel.get_by_role("definition").first).to_have_text("scripted")
    assert await parts.count() < in_second
    await parts.first.click()
    await expect(panel.locator("pre").first).to_contain_text("You are")


async def test_a_failed_message_is_sent_again_with_its_file(person: Person, harness: Any) -> None:
    await person.attach("sales.csv", SALES)
    await person.send("script:fail please")
    await expect(person.reply).to_contain_text("Try again in a moment.")
    failure = person.reply.get_by_role("group", name="The answer failed")
    assert ".." not in await failure.inner_text()

    await person.button("Try again").click()

    await expect(person.turns).to_have_count(2)
    await person.finish()
    turns = (await harness.clients[0].fetch(await person.read_conversation_id())).turns
    assert [(turn.text, [file.filename for file in turn.attachments]) for turn in turns] == [
        ("script:fail please", ["sales.csv"])
    ] * 2
    await expect(person.button("Try again")).to_have_count(1)


async def test_a_suggested_question_is_sent_on_click(person: Person) -> None:
    await person.send("script:plain please")

    await person.button("script:plain once more").click()

    await expect(person.turns).to_have_count(2)
    await person.finish()
    await expect(person.turns.last).to_contain_text("script:plain once more")


async def test_a_compaction_is_shown(person: Person, gates: Path) -> None:
    begun = person.page.get_by_text("Summarizing earlier messages")
    for number in range(1, MAX_TURNS):
        await person.send(f"script:twice {number} {LONG_MESSAGE}")
        await expect(person.turns.last).to_have_attribute("aria-label", f"Message {number}")
        await expect(person.reply).to_contain_text("before the gate first")
        if await begun.count():
            break
        for gate in ("first", "second"):
            (gates / gate).touch()
        await expect(person.reply).to_contain_text("Passed both.")
        await person.finish()

    await expect(begun).to_be_visible()
    (gates / "first").touch()
    await expect(person.page.get_by_text("Earlier messages were summarized.")).to_be_visible()
    (gates / "second").touch()
    await expect(person.reply).to_contain_text("Passed both.")
