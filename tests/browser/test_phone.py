"""On a screen that is touched: new lines, one row of buttons, and nothing that is wider than the screen."""

from pathlib import Path

import pytest
from browsing.crowd import Crowd
from browsing.person import Person
from playwright.async_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

PHONE = {"width": 390, "height": 780}
SMALL = {"width": 320, "height": 640}
TOPS = """names => names.map(name => {
    const box = document.querySelector(`form[aria-label=Message] button${name}`).getBoundingClientRect();
    return [Math.round(box.top), box.right <= innerWidth && box.left >= 0];
})"""


async def come(crowd: Crowd, viewport: dict[str, int]) -> Person:
    return await crowd.come(viewport=viewport, has_touch=True, is_mobile=True)


async def test_enter_makes_a_new_line_and_the_button_sends(crowd: Crowd) -> None:
    person = await come(crowd, PHONE)

    await person.field.press_sequentially("script:plain")
    await person.field.press("Enter")
    await person.field.press_sequentially("please")
    await expect(person.field).to_have_value("script:plain\nplease")
    await expect(person.field).to_have_attribute("enterkeyhint", "enter")
    await person.button("Send").tap()

    await expect(person.reply).to_contain_text("A plain answer.")


async def test_queue_redirect_and_stop_stand_in_one_row_on_the_smallest_screen(crowd: Crowd, gates: Path) -> None:
    person = await come(crowd, SMALL)
    await person.field.fill("script:gate please")
    await person.button("Send").tap()
    await expect(person.reply).to_contain_text("before the gate first")
    await person.field.fill("And mind the south.")

    names = ["[type=submit]", "[title*=drops]", "[title*=Stop]", "[aria-label='Attach files']"]
    places = await person.page.evaluate(TOPS, names)
    assert len({top for top, _ in places}) == 1
    assert all(is_inside for _, is_inside in places)
    # A page that is wider than the screen makes the window as wide.
    assert await person.page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [320, 320]
    await person.button("Queue").tap()
    await expect(person.page.get_by_role("group", name="You added")).to_contain_text("Queued")
    (gates / "first").touch()
    await person.finish()


async def test_what_is_written_from_the_right_runs_from_the_right(crowd: Crowd) -> None:
    person = await come(crowd, PHONE)
    await person.field.fill("مرحبا بالعالم. script:plain")
    assert await person.field.evaluate("field => getComputedStyle(field).direction") == "rtl"
    await person.button("Send").tap()

    said = person.page.get_by_role("group", name="You said").locator("p")
    await expect(said).to_contain_text("مرحبا")
    assert await said.evaluate("said => getComputedStyle(said).direction") == "rtl"
    await person.finish()
