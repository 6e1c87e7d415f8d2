"""The chat of one agent in a page of another site: an allowed origin can show it, and no other."""

from typing import Any

import pytest
from browsing.person import Person
from browsing.site import OtherSite
from playwright.async_api import FrameLocator, Page, expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def make_ticket_url(person: Person, site: OtherSite, **body: Any) -> str:
    """The address for the frame, as the backend of the site gets it."""
    base = person.url.rstrip("/")
    answer = await person.page.request.post(
        f"{base}/bundles/default/default/support/embed-tickets", data={"origin": site.allowed, **body}
    )
    assert answer.status == 201
    return f"{base}{(await answer.json())['url']}"


def frame_of(page: Page) -> FrameLocator:
    return page.frame_locator("iframe")


async def test_a_page_of_an_allowed_origin_chats_with_the_agent(person: Person, site: OtherSite, harness: Any) -> None:
    site.show(await make_ticket_url(person, site, user="caller"))
    await person.page.goto(site.allowed)
    chat = frame_of(person.page)

    await expect(chat.get_by_role("heading", level=1, name="Support")).to_be_visible()
    await expect(chat.get_by_text("Answers questions about orders and returns.")).to_be_visible()
    await chat.get_by_role("button", name="script:plain, where is my order?").click()

    await expect(chat.get_by_role("group", name="Reply", exact=True)).to_contain_text("A plain answer.")
    await expect(chat.get_by_role("button", name="Copy answer")).to_be_visible()
    assert await chat.get_by_role("button", name="Show what the model saw").count() == 0
    assert await chat.get_by_role("button", name="Fork the conversation from here").count() == 0
    field = chat.get_by_role("textbox", name="Your message", exact=True)
    await expect(field).to_have_attribute("placeholder", "Ask \u2068Support\u2069…")
    await field.fill("script:note please")
    await field.press("Enter")
    await expect(chat.get_by_role("group", name="Reply", exact=True).last).to_contain_text("The note is in")
    assert await chat.get_by_role("list", name="Widgets").count() == 0
    assert await chat.get_by_role("searchbox", name="Search conversations").count() == 0
    listed = await harness.clients[0].list_conversations()
    assert any(each.bundle_id == "support" for each in listed.items)
    frame = person.page.frames[1]
    assert "ticket" not in frame.url
    assert await frame.evaluate("document.cookie") == ""
    assert await person.page.context.cookies() == []

    # The ticket was used up.
    await person.page.reload()
    await expect(chat.get_by_role("alert")).to_contain_text("was used already")


async def test_a_guest_chats_without_an_account(person: Person, site: OtherSite) -> None:
    site.show(await make_ticket_url(person, site, visitor="customer-17"))
    await person.page.goto(site.allowed)
    chat = frame_of(person.page)

    await chat.get_by_role("button", name="script:plain, where is my order?").click()

    await expect(chat.get_by_role("group", name="Reply", exact=True)).to_contain_text("A plain answer.")


@pytest.mark.parametrize("frame", ["", 'referrerpolicy="no-referrer"'], ids=["says who it is", "hides who it is"])
async def test_a_page_of_a_foreign_origin_cannot_show_the_chat(person: Person, site: OtherSite, frame: str) -> None:
    url = await make_ticket_url(person, site)
    answers: list[int] = []
    person.page.on("response", lambda response: answers.append(response.status) if "/embed/" in response.url else None)
    site.show(url, frame)
    await person.page.goto(site.foreign)
    await expect(person.page.get_by_role("heading", name="Shop")).to_be_visible()
    await person.page.wait_for_function("document.readyState === 'complete'")

    assert await frame_of(person.page).get_by_role("textbox").count() == 0
    assert person.page.frames[1].url.startswith("chrome-error:")
    # The server refuses what names its origin; the browser refuses the other by the header.
    assert 200 not in answers if not frame else 201 not in answers
    # Neither has used the ticket up.
    site.show(url)
    await person.page.goto(site.allowed)
    await expect(frame_of(person.page).get_by_role("textbox", name="Your message")).to_be_visible()


async def test_a_foreign_origin_gets_no_ticket(person: Person, site: OtherSite) -> None:
    answer = await person.page.request.post(
        f"{person.url}bundles/default/default/support/embed-tickets", data={"origin": site.foreign}
    )

    assert answer.status == 403
