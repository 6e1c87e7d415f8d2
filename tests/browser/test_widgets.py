"""Widgets of a bundle beside its conversation: they follow it, act through the page, and get out of their frame in no
way."""

import asyncio

import pytest
from browsing.accessibility import find_violations
from browsing.forbidden_server import ForbiddenServer, visit
from browsing.person import Person
from playwright.async_api import FrameLocator, expect

pytestmark = [pytest.mark.e2e, pytest.mark.sampled, pytest.mark.asyncio(loop_scope="session")]

TYPED = "The widget must not read this."


async def open_widget(person: Person, title: str, message: str) -> FrameLocator:
    """In a conversation with the agent Support that begins with this message."""
    await person.page.get_by_role("radio", name="Support", exact=True).click()
    await person.send(message)
    await person.finish()
    await person.page.get_by_role("list", name="Widgets").get_by_role("button", name=title).click()
    return person.page.frame_locator(f"iframe[title='{title}']")


async def test_a_widget_follows_the_canvas_and_sends_a_message_that_the_person_confirms(person: Person) -> None:
    board = await open_widget(person, "Board", "script:note please")
    await expect(board.locator("#started")).to_have_text("version 1")
    await expect(board.locator("#canvas")).to_contain_text("Written *once*, shown once.")
    assert await board.locator("h1").evaluate("title => getComputedStyle(title).color") == "rgb(1, 2, 3)"
    assert await board.locator("#dot").evaluate("image => image.naturalWidth") == 7

    await board.get_by_role("button", name="Close ticket 7").click()
    proposal = person.page.get_by_role("region", name="Message from the widget")
    await expect(proposal).to_contain_text("script:plain, close 7")
    assert await find_violations(person.page) == []
    await proposal.get_by_role("button", name="Send this message").click()

    await expect(person.reply).to_contain_text("A plain answer.")
    await expect(board.locator("#answer")).to_have_text('{"sent":true}')
    await person.finish()


async def test_an_operation_that_the_bundle_has_not_is_an_error_for_the_widget(person: Person) -> None:
    board = await open_widget(person, "Board", "script:plain please")

    await board.get_by_role("button", name="Count").click()

    await expect(board.locator("#answer")).to_have_text("404: The operation is unknown")


async def test_a_hostile_widget_reaches_nothing_and_sends_nothing(person: Person, stranger: ForbiddenServer) -> None:
    await visit(stranger)
    stranger.visits.clear()
    frame = await open_widget(person, "Hostile", "script:plain please")
    before = person.page.url

    await expect(frame.locator("#report")).to_contain_text("origin null")
    assert await frame.locator("#report").inner_text() == (
        "origin null, parent closed, token closed, storage closed, cookies closed, window closed, top closed,"
        " dialog closed, network closed, our server closed, sockets closed, nested pages closed"
    )
    # Its message waits for the person.
    await expect(person.page.get_by_role("region", name="Message from the widget")).to_be_visible()
    await expect(person.turns).to_have_count(1)
    await person.button("Don\u2019t send it").click()
    await person.page.evaluate("document.querySelector('iframe').contentWindow.postMessage('leave', '*')")
    await asyncio.sleep(1)
    await expect(person.turns).to_have_count(1)
    assert (person.page.url, len(person.page.context.pages)) == (before, 1)
    assert await person.page.evaluate("window.hurt === undefined") is True
    assert [visit for visit in stranger.visits if visit not in ("connected", repr(b""))] == []


async def test_a_widget_that_takes_the_focus_from_the_message_field_is_stopped(person: Person) -> None:
    frame = await open_widget(person, "Hostile", "script:plain please")
    await expect(frame.locator("#report")).to_contain_text("origin null")
    await person.button("Don\u2019t send it").click()
    await person.field.click()
    await person.page.evaluate("document.querySelector('iframe').contentWindow.postMessage('steal', '*')")

    await expect(person.page.get_by_role("alert")).to_contain_text("It took the focus while you were typing.")

    await expect(person.page.locator("iframe")).to_have_count(0)
    await expect(person.field).to_be_focused()
    await person.page.keyboard.type(TYPED)
    await expect(person.field).to_have_value(TYPED)


async def test_a_flood_is_dropped_and_the_widget_stopped_while_the_page_goes_on(person: Person) -> None:
    frame = await open_widget(person, "Hostile", "script:plain please")
    await expect(frame.locator("#report")).to_contain_text("origin null")
    calls: list[str] = []
    person.page.on("request", lambda request: calls.append(request.url))

    await person.page.evaluate("document.querySelector('iframe').contentWindow.postMessage('flood', '*')")

    await expect(person.page.get_by_role("alert")).to_contain_text("The widget was stopped.")
    await expect(person.page.locator("iframe")).to_have_count(0)
    assert len([url for url in calls if "/operations/" in url]) <= 60
    await person.send("script:plain again")
    await expect(person.reply).to_contain_text("A plain answer.")
    await person.finish()
