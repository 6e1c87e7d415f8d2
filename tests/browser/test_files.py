"""Files in messages and files made by turns."""

import base64
from typing import Any

import pytest
from browsing.person import Person
from browsing.replies import SALES
from playwright.async_api import expect

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def test_a_table_becomes_a_chart_across_a_reload(person: Person, harness: Any) -> None:
    await person.attach("sales.csv", SALES)
    await person.send("What is the total revenue by region?")
    await expect(person.button("Stop")).to_be_visible()
    conversation_id = await person.read_conversation_id()
    await expect(person.turns).to_have_attribute("aria-label", "Message 1")

    await person.page.reload()

    await expect(person.button("Send")).to_be_visible()
    chart = person.reply.get_by_role("img", name="sales.png").first
    await expect(chart).to_be_visible()
    assert await chart.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    state = await harness.clients[0].fetch(conversation_id)
    (turn,) = state.turns
    assert [file.filename for file in turn.attachments] == ["sales.csv"]
    await expect(person.turns).to_have_count(1)
    await expect(person.page.get_by_role("button", name="Open sales.png", exact=True)).not_to_have_count(0)
    assert (await person.turns.inner_text()).count("What is the total revenue by region?") == 1


@pytest.mark.slow
async def test_the_end_stays_in_view_when_a_chart_loads_late(
    person: Person,
) -> None:
    await person.page.set_viewport_size({"width": 900, "height": 600})
    await person.attach("sales.csv", SALES)
    await person.send("What is the total revenue by region?")
    await expect(person.reply.get_by_role("img", name="sales.png").first).to_be_visible()
    await expect(person.button("Send")).to_be_visible()
    await check_at_end(person)

    await person.page.reload()

    await expect(person.reply.get_by_role("img", name="sales.png").first).to_be_visible()
    await check_at_end(person)
    await person.messages.hover()
    await person.page.mouse.wheel(0, -400)
    await expect(person.button("Jump to latest")).to_be_visible()


async def check_at_end(person: Person) -> None:
    """Waits until all images are drawn: the view is at the end, without a button to go there."""
    await person.page.wait_for_function("[...document.images].every(image => image.complete)")
    await person.page.wait_for_function(
        "() => { const e = document.getElementById('messages');"
        " return e.scrollHeight > e.clientHeight && e.scrollHeight - e.scrollTop - e.clientHeight <= 2; }"
    )
    await expect(person.button("Jump to latest")).to_have_count(0)


async def test_a_large_file_is_refused_at_once_and_images_have_thumbnails(
    person: Person,
) -> None:
    await person.attach("huge.png", PIXEL + bytes(6_000_000), "image/png")

    await expect(person.page.get_by_role("alert")).to_contain_text(
        "huge.png is too large (6.0 MB). The limit is 5.0 MB."
    )
    await expect(person.page.get_by_role("list", name="Files to send")).to_have_count(0)
    await person.attach("pixel.png", PIXEL, "image/png")
    picture = person.page.get_by_role("list", name="Files to send").locator("img")
    await expect(picture).to_be_visible()
    assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1


async def test_a_rejected_file_is_named_and_the_message_stays(person: Person) -> None:
    await person.attach("holiday.png", b"This is no picture.", "image/png")

    await person.offer("Look at this.")

    alert = person.page.get_by_role("alert")
    await expect(alert).to_contain_text("holiday.png")
    await expect(person.page.get_by_role("list", name="Files to send")).to_contain_text("rejected")
    await expect(person.field).to_have_value("Look at this.")
