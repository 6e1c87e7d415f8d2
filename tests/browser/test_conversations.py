"""The list of conversations: search, rename, archive, fork, export and delete."""

import json
from typing import Any

import pytest
from browsing.person import Person
from playwright.async_api import Locator, expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

PAGE_ROWS = 50


def find(person: Person, title: str) -> Locator:
    return person.page.get_by_role("link", name=title)


async def begin(person: Person, title: str) -> str:
    """A conversation with one turn, whose first words are its title."""
    await person.send(title)
    await person.finish()
    await expect(find(person, title)).to_be_visible()
    return await person.read_conversation_id()


async def choose(person: Person, title: str, item: str) -> None:
    await person.button(f"Actions for {title}").click()
    await person.page.get_by_role("menuitem", name=item).click()


@pytest.mark.slow
async def test_a_renamed_conversation_has_its_name_in_every_tab(person: Person) -> None:
    await begin(person, "script:plain to rename")
    other = await person.open_tab()

    await choose(person, "script:plain to rename", "Rename")
    await person.page.get_by_role("dialog").get_by_role("textbox").fill("Sales of the north")
    await person.button("Rename").click()

    await expect(find(person, "Sales of the north")).to_be_visible()
    await other.look()
    await expect(find(other, "Sales of the north")).to_be_visible()


async def test_a_conversation_is_archived_and_unarchived(person: Person) -> None:
    title = "script:plain to archive"
    await begin(person, title)

    await choose(person, title, "Archive")
    await expect(find(person, title)).to_have_count(0)
    await person.button("Undo").click()
    await expect(person.page.get_by_text("Unarchived.").last).to_be_visible()
    await expect(find(person, title)).to_be_visible()
    await choose(person, title, "Archive")
    await expect(person.page.get_by_text("Archived.").last).to_be_visible()
    await expect(find(person, title)).to_have_count(0)
    await person.button("Archived").click()
    await expect(find(person, title)).to_be_visible()
    await choose(person, title, "Unarchive")
    await expect(find(person, title)).to_have_count(0)
    await person.button("Active").click()

    await expect(find(person, title)).to_be_visible()


async def test_a_fork_continues_from_a_turn_and_keeps_the_original(person: Person, harness: Any) -> None:
    first_id = await begin(person, "script:plain to fork")
    await person.send("script:plain that stays behind")
    await expect(person.turns).to_have_count(2)
    await person.finish()

    await person.turns.first.get_by_role("button", name="Fork the conversation from here").click()
    await expect(person.turns).to_have_count(1)
    await expect(person.page.get_by_role("heading", level=1)).to_have_text("script:plain to fork (fork)")
    await expect(person.page.get_by_text("Forked to a new conversation.").last).to_be_visible()
    fork_id = await person.read_conversation_id()
    await person.send("script:plain in the fork")
    await expect(person.turns).to_have_count(2)
    await person.finish()

    texts = [[turn.text for turn in (await harness.clients[0].fetch(each)).turns] for each in (first_id, fork_id)]
    assert texts == [
        ["script:plain to fork", "script:plain that stays behind"],
        ["script:plain to fork", "script:plain in the fork"],
    ]


async def test_a_complete_export_is_downloaded(person: Person) -> None:
    conversation_id = await begin(person, "script:plain to export")

    async with person.page.expect_download() as started:
        await choose(person, "script:plain to export", "Export")
    file = await started.value
    await expect(person.page.get_by_text("Export downloaded.").last).to_be_visible()

    assert file.suggested_filename == f"{conversation_id}.jsonl"
    lines = [json.loads(line) for line in (await file.path()).read_text().splitlines()]
    assert lines[0]["conversation_id"] == conversation_id
    assert any("A plain answer." in json.dumps(line) for line in lines)


async def test_a_deleted_conversation_is_gone_from_list_and_server(person: Person, harness: Any) -> None:
    title = "script:plain to delete"
    conversation_id = await begin(person, title)

    await choose(person, title, "Delete")
    dialog = person.page.get_by_role("alertdialog")
    await expect(dialog).to_contain_text(title)
    await dialog.get_by_role("button", name="Delete").click()

    await expect(find(person, title)).to_have_count(0)
    await expect(person.page.get_by_role("heading", level=1)).to_have_text("What would you like to work on?")
    listed = await harness.clients[0].list_conversations(search="to delete")
    assert conversation_id not in {each.conversation_id for each in listed.items}


@pytest.mark.slow
async def test_a_missing_conversation_offers_a_new_one(person: Person) -> None:
    await person.page.goto(f"{person.url}#/conv_01900000-0000-7000-8000-000000000000")

    await expect(person.page.get_by_role("heading", level=1)).to_have_text("Conversation not found")
    await person.button("Start a new conversation").click()
    await expect(person.page.get_by_role("heading", level=1)).to_have_text("What would you like to work on?")


@pytest.mark.slow
async def test_the_list_loads_more_on_scroll_and_finds_titles(person: Person, harness: Any) -> None:
    made = [await harness.clients[0].create_conversation(f"Made before {number}") for number in range(PAGE_ROWS + 5)]
    await harness.clients[0].rename_conversation(made[0].conversation_id, "The very first one")
    await person.page.reload()
    await expect(find(person, f"Made before {PAGE_ROWS + 4}")).to_be_visible()
    await find(person, f"Made before {PAGE_ROWS + 4}").hover()

    for _ in range(40):
        if await find(person, "The very first one").count():
            break
        await person.page.mouse.wheel(0, 600)
        await person.page.wait_for_function("() => new Promise(done => requestAnimationFrame(() => done(true)))")
    await expect(find(person, "The very first one")).to_be_visible()
    assert await person.page.get_by_role("navigation").get_by_role("link").count() < PAGE_ROWS

    await person.page.get_by_role("searchbox", name="Search conversations").fill("very first")
    titles = person.page.get_by_role("navigation").get_by_test_id("virtuoso-item-list")
    await expect(titles.get_by_role("link")).to_have_count(1)
    await expect(find(person, "The very first one")).to_be_visible()
