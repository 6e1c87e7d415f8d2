"""Takes the screenshots of the README from the real page (`make pictures`)."""

from pathlib import Path

import pytest
from browsing.person import Person
from browsing.replies import SALES
from browsing.users import BrowserUsers
from playwright.async_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MAX_BYTES = 150_000
DESK = {"width": 1100, "height": 760}
HAND = {"width": 390, "height": 780}


async def take(person: Person, name: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    await person.page.mouse.move(0, 0)
    picture = await person.page.screenshot(path=IMAGES / f"{name}.png", caret="hide", animations="disabled")
    assert len(picture) <= MAX_BYTES


async def ask_for_a_chart(person: Person) -> None:
    await person.attach("sales.csv", SALES)
    await person.field.fill("What is the total revenue by region?")
    # On a phone Enter adds a line.
    await person.button("Send").click()
    await expect(person.reply.get_by_role("img", name="sales.png").first).to_be_visible()
    await person.finish()
    await person.page.wait_for_function("[...document.images].every(image => image.complete)")


async def test_chart_in_light_and_dark_and_the_inspector(users: BrowserUsers) -> None:
    person = await users.open_page(viewport=DESK, color_scheme="light")
    await ask_for_a_chart(person)
    await take(person, "conversation-light")

    await person.page.emulate_media(color_scheme="dark")
    await expect(person.page.locator("html[data-theme=dark]")).to_be_visible()
    await take(person, "conversation-dark")

    await person.page.emulate_media(color_scheme="light")
    await person.button("Show what the model saw").click()
    await expect(person.page.get_by_role("region", name="Cache")).to_be_visible()
    await take(person, "context")


async def test_chart_on_a_phone(users: BrowserUsers) -> None:
    person = await users.open_page(viewport=HAND, has_touch=True, is_mobile=True, color_scheme="light")
    await ask_for_a_chart(person)

    await take(person, "phone")


async def test_approval_of_a_tool_call(users: BrowserUsers) -> None:
    person = await users.open_page(viewport=DESK, color_scheme="light")
    await person.send("Please send Ann the report.")
    question = person.page.get_by_role("region", name="Approval of mail.send")
    await expect(question).to_be_visible()
    await take(person, "approval")

    await question.get_by_role("button", name="Deny").click()
    await person.finish()
