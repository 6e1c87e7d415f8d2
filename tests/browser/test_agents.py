"""Choose an agent, start with one of its messages, and see who answers."""

from typing import Any

import pytest
from browsing.accessibility import find_violations
from browsing.person import Person
from browsing.replies import HURT
from browsing.users import BrowserUsers
from playwright.async_api import Locator, Route, expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

MARKUP = f"<img src=x onerror={HURT}>"
LISTS = "**/bundles/default/default"
SMALL = {"width": 320, "height": 568}


def choice(person: Person, title: str) -> Locator:
    return person.page.get_by_role("radiogroup", name="Agent").get_by_role("radio", name=title, exact=True)


def describe(number: int) -> dict[str, Any]:
    """An agent with everything that a title can do to a page."""
    return {
        "id": f"agent-{number}",
        "title": f"{number} {MARKUP} {'Wide' * 12}"[:80],
        "description": f"{MARKUP} \u202e {'long ' * 90}" if number % 2 else "يراجع العقود ويجيب عن الأسئلة.",
        "icon": ("🛟", "👨‍👩‍👧‍👦", "<script>", "")[number % 4],
        "starters": [MARKUP, "W" * 300],
        "is_default": number == 0,
        "is_ready": number != 3,
        "error": "bundle.toml, line 3: titel is not a known key." if number == 3 else None,
        "problems": [f"mcp.crm: {MARKUP}"] if number == 4 else [],
    }


async def test_choose_by_keyboard_start_and_find_the_agent_again(person: Person, harness: Any) -> None:
    keyboard = person.page.keyboard
    await expect(person.page.get_by_role("radio", checked=True)).to_have_count(1)
    await person.tab_to(person.page.get_by_role("radio", checked=True))
    await keyboard.press("ArrowDown")
    await expect(choice(person, "Support")).to_be_checked()
    await expect(choice(person, "Support")).to_be_focused()
    assert await choice(person, "Support").evaluate("radio => getComputedStyle(radio).outlineStyle") != "none"
    assert await find_violations(person.page) == []

    await person.tab_to(person.button("script:plain, where is my order?"))
    await keyboard.press("Enter")

    await expect(person.reply).to_contain_text("A plain answer.")
    await expect(
        person.page.get_by_role("main").get_by_role("paragraph").filter(has_text="Agent: Support")
    ).to_be_visible()
    await person.finish()
    state = await harness.clients[0].fetch(await person.read_conversation_id())
    assert (state.conversation.bundle_id, state.turns[0].text) == ("support", "script:plain, where is my order?")
    assert await find_violations(person.page) == []
    await person.button("New conversation").click()
    await expect(choice(person, "Support")).to_be_checked()
    await person.page.reload()
    await expect(choice(person, "Support")).to_be_checked()


async def test_a_click_chooses_and_returns_to_the_message(person: Person) -> None:
    await choice(person, "Support").click()
    await expect(person.field).to_be_focused()

    await person.button("Write a reply to:").click()

    await expect(person.field).to_be_focused()
    await person.page.keyboard.type("Ann")
    await expect(person.field).to_have_value("Write a reply to: Ann")


@pytest.mark.slow
async def test_two_hundred_hostile_agents_fit_a_small_phone(users: BrowserUsers) -> None:
    person = await users.open_page(viewport=SMALL, has_touch=True, is_mobile=True)

    async def answer(route: Route) -> None:
        await route.fulfill(json={"bundles": [describe(number) for number in range(200)]})

    await person.page.route(LISTS, answer)
    await person.page.reload()
    search = person.page.get_by_role("searchbox", name="Search agents")
    await search.fill("agent-17 wide")
    await expect(person.page.get_by_role("radio")).to_have_count(11)
    await search.fill("agent-150")
    await person.page.get_by_role("radio").tap()
    await search.fill("")

    await expect(person.page.get_by_role("radio", checked=True)).to_have_count(1)
    assert await person.page.evaluate("document.documentElement.scrollWidth") == SMALL["width"]
    assert await person.page.evaluate("[document.images.length, window.hurt === undefined]") == [0, True]
    assert await find_violations(person.page) == []


async def test_without_a_list_the_default_agent_answers(person: Person) -> None:
    await person.page.route(LISTS, lambda route: route.abort())
    await person.page.reload()

    await person.send("script:plain please")

    await expect(person.reply).to_contain_text("A plain answer.")
    await person.finish()
