"""Searching messages and opening a conversation at a match."""

import asyncio
import re
from typing import Any

import pytest
from browsing.accessibility import SIZES, Width, find_violations
from browsing.person import Person
from browsing.seeds import repeat_turn
from browsing.users import BrowserUsers
from playwright.async_api import Locator, expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

TURNS = 150
MANY = 12


def turn(person: Person, ordinal: int) -> Locator:
    return person.page.get_by_role("article", name=f"Message {ordinal}", exact=True)


async def test_an_old_message_is_found_and_opened(person: Person, harness: Any) -> None:
    await person.send("script:rich NUMBER, and what of the quayside?")
    await person.finish()
    conversation_id = await person.read_conversation_id()
    await harness.clients[0].rename_conversation(conversation_id, "Ports of the north")
    await person.wait_for_index("quayside")
    await asyncio.to_thread(repeat_turn, harness.platform, conversation_id, count=TURNS)
    await person.open()

    hit = await person.search("QUAYSIDE?")
    await expect(hit).to_contain_text("Ports of the north")
    await expect(hit.locator("mark")).to_have_text("quayside")
    await expect(person.page.get_by_text("No matching titles.")).to_be_visible()
    await person.tab_to(hit)
    await person.page.keyboard.press("Enter")

    await expect(turn(person, 1)).to_be_focused()
    await expect(turn(person, 1).get_by_role("group", name="You said")).to_be_in_viewport()
    await person.page.reload()
    await expect(turn(person, 1).get_by_role("group", name="You said")).to_be_in_viewport()
    await person.button("Jump to latest").click()
    await expect(turn(person, TURNS)).to_be_in_viewport()
    await (await person.search("quayside")).click()
    await expect(turn(person, 1).get_by_role("group", name="You said")).to_be_in_viewport()


@pytest.mark.slow
async def test_a_button_loads_more_and_a_link_opens_another_tab(person: Person) -> None:
    for number in range(MANY):
        await person.send(f"script:plain, pelican number {number}")
        await expect(turn(person, number + 1)).to_be_in_viewport()
        await person.finish()
    await person.wait_for_index("pelican", MANY)
    hits = await person.search("pelican")
    await expect(hits).to_have_count(10)

    await person.button("Show more messages").click()

    await expect(hits).to_have_count(MANY)
    await expect(hits.nth(10)).to_be_focused()
    await expect(person.button("Show more messages")).to_have_count(0)
    last = hits.filter(has_text=re.compile(f"number {MANY - 1}"))
    async with person.page.context.expect_page() as opened:
        await last.click(modifiers=["ControlOrMeta"])
    other = Person(await opened.value, person.page.url, person.alarms)
    await expect(turn(other, MANY)).to_be_in_viewport()


@pytest.mark.slow
@pytest.mark.parametrize("look", ["desktop", "phone"])
async def test_a_search_in_the_open_chat_finds_only_its_messages(users: BrowserUsers, look: Width) -> None:
    person = await users.open_page(viewport=SIZES[look])
    word = f"cormorant{look}"
    await person.send(f"script:plain, a {word} at home")
    await person.finish()
    await person.show_list()
    await person.button("New conversation").click()
    for words in (f"a {word} abroad", "nothing"):
        await person.send(f"script:plain, {words}")
        await person.finish()
    await person.wait_for_index(word, 2)
    await person.show_list()
    await expect(await person.search(word)).to_have_count(2)

    await person.button("This conversation").press("Enter")

    hits = person.page.get_by_role("region", name="In this conversation").get_by_role("link")
    await expect(hits).to_have_count(1)
    await expect(hits).to_contain_text("abroad")
    assert await find_violations(person.page, widths=(look,)) == []
    await hits.press("Enter")
    await expect(turn(person, 1)).to_be_focused()
    await expect(turn(person, 1).get_by_role("group", name="You said")).to_be_in_viewport()
