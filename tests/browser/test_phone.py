"""Touch screens: line breaks, one row of buttons, and nothing wider than the screen."""

from pathlib import Path

import pytest
from browsing.person import Person
from browsing.users import BrowserUsers
from playwright.async_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

PHONE = {"width": 390, "height": 780}
SMALL = {"width": 320, "height": 640}
TOPS = """names => names.map(name => {
    const box = document.querySelector(`form[aria-label=Message] button${name}`).getBoundingClientRect();
    return [Math.round(box.top), box.right <= innerWidth && box.left >= 0];
})"""


async def open_phone(users: BrowserUsers, viewport: dict[str, int]) -> Person:
    return await users.open_page(viewport=viewport, has_touch=True, is_mobile=True)


@pytest.mark.slow
async def test_enter_adds_a_line_and_the_button_sends(users: BrowserUsers) -> None:
    person = await open_phone(users, PHONE)

    await person.field.press_sequentially("script:plain")
    await person.field.press("Enter")
    await person.field.press_sequentially("please")
    await expect(person.field).to_have_value("script:plain\nplease")
    await expect(person.field).to_have_attribute("enterkeyhint", "enter")
    await person.button("Send").tap()

    await expect(person.reply).to_contain_text("A plain answer.")


async def test_queue_redirect_and_stop_fit_into_one_row(users: BrowserUsers, gates: Path) -> None:
    person = await open_phone(users, SMALL)
    await person.field.fill("script:gate please")
    await person.button("Send").tap()
    await expect(person.reply).to_contain_text("before the gate first")
    await person.field.fill("And mind the south.")

    names = ["[type=submit]", "[title*='follows this']", "[title*=Stop]", "[aria-label='Attach files']"]
    places = await person.page.evaluate(TOPS, names)
    assert len({top for top, _ in places}) == 1
    assert all(is_inside for _, is_inside in places)
    # A page wider than the screen would widen the window.
    assert await person.page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [320, 320]
    await person.button("Add").tap()
    await expect(person.page.get_by_role("group", name="You added a message")).to_contain_text("Sent")
    (gates / "first").touch()
    await person.finish()


@pytest.mark.slow
async def test_back_closes_the_list_that_covers_the_conversation(users: BrowserUsers) -> None:
    person = await open_phone(users, PHONE)
    await person.field.fill("script:note please")
    await person.button("Send").tap()
    await person.read_conversation_id()
    place = person.page.url
    opener = person.button("Show conversations")

    await opener.tap()
    await expect(opener).to_have_attribute("aria-expanded", "true")
    await person.page.go_back()

    await expect(opener).to_have_attribute("aria-expanded", "false")
    await expect(opener).to_be_focused()
    assert person.page.url == place


async def test_back_closes_the_panel_that_covers_the_conversation(users: BrowserUsers) -> None:
    person = await open_phone(users, PHONE)
    await person.field.fill("script:note please")
    await person.button("Send").tap()
    await person.read_conversation_id()
    place = person.page.url
    panel = person.page.get_by_role("complementary", name="outputs/note.md")
    opener = person.page.get_by_role("button", name="Open outputs/note.md", exact=True).first
    await expect(person.reply).to_contain_text("The note is in")

    await opener.tap()
    await expect(panel.get_by_role("heading", name="Note", exact=True)).to_be_visible()
    await person.page.go_back()
    await expect(panel).to_have_count(0)
    await expect(opener).to_be_focused()
    assert person.page.url == place

    # Closed by its button, it leaves no history entry: Back goes to the page for a new conversation.
    await opener.tap()
    await panel.get_by_role("button", name="Close panel").tap()
    await expect(panel).to_have_count(0)
    await person.page.wait_for_function("history.state === null")
    # After a reload nothing is open, and the panel has no history entry.
    await opener.tap()
    await expect(panel).to_be_visible()
    await person.page.reload()
    await expect(opener).to_be_visible()
    await person.page.wait_for_function("history.state === null")
    assert person.page.url == place
    await person.page.go_back()

    await expect(person.page.get_by_role("heading", level=1)).to_have_text("What would you like to work on?")


@pytest.mark.slow
async def test_right_to_left_text_runs_from_the_right(users: BrowserUsers) -> None:
    person = await open_phone(users, PHONE)
    await person.field.fill("مرحبا بالعالم. script:plain")
    assert await person.field.evaluate("field => getComputedStyle(field).direction") == "rtl"
    await person.button("Send").tap()

    said = person.page.get_by_role("group", name="You said").locator("p")
    await expect(said).to_contain_text("مرحبا")
    assert await said.evaluate("said => getComputedStyle(said).direction") == "rtl"
    await person.finish()
