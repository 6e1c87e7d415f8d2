"""Markup that would like to run: in answers, in names of files, and in pages that the agent writes."""

import pytest
from browsing.person import Person
from browsing.replies import HOSTILE_NAME
from browsing.stranger import Stranger, visit
from playwright.async_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

ACTIVE = "img, script, iframe, svg:not([class*=lucide]), [onload], [onerror], a[href^='javascript'], a[href^='data']"


async def test_hostile_markup_in_an_answer_stays_text(person: Person) -> None:
    await person.send("script:hostile please")

    await expect(person.reply).to_contain_text("Before")
    await person.finish()
    await expect(person.reply).to_contain_text("<script>window.hurt=1</script>")
    assert await person.page.evaluate("window.hurt") is None
    assert await person.reply.locator(ACTIVE).count() == 0


async def test_hostile_markup_in_a_message_and_in_a_title_stays_text(person: Person) -> None:
    text = "<img src=x onerror=window.hurt=1> script:plain"
    await person.send(text)

    await expect(person.page.get_by_role("group", name="You said")).to_contain_text(text)
    await person.finish()
    title = person.page.get_by_role("link", name="<img src=x").first
    await expect(title).to_be_visible()
    assert await person.page.evaluate("window.hurt") is None


async def test_a_file_with_markup_in_its_name_is_shown_by_its_name_and_runs_nothing(person: Person) -> None:
    await person.attach(HOSTILE_NAME, b"month,sold\n2024-01,3\n")
    await expect(person.page.get_by_role("list", name="Files to send")).to_contain_text(HOSTILE_NAME)
    await person.send("script:plain with a file")
    await person.finish()

    await person.button(f"Open {HOSTILE_NAME}").click()

    panel = person.page.get_by_role("complementary", name=HOSTILE_NAME)
    await expect(panel.get_by_role("cell", name="2024-01")).to_be_visible()
    assert await person.page.evaluate("window.hurt") is None
    async with person.page.expect_download() as started:
        await panel.get_by_role("button", name="Download").click()
    saved = await (await started.value).path()
    assert saved.read_bytes() == b"month,sold\n2024-01,3\n"


async def test_a_page_of_the_agent_runs_in_its_frame_and_reaches_nothing(person: Person, stranger: Stranger) -> None:
    await visit(stranger)
    stranger.visits.clear()
    await person.send("script:page please")
    await person.finish()

    await person.button("Open outputs/page.html").first.click()

    told = person.page.frame_locator("iframe[title='Page made by the agent']").locator("#told")
    await expect(told).to_contain_text("origin null")
    assert await told.inner_text() == (
        "origin null, parent closed, storage closed, cookies closed, window closed, top closed, dialog closed,"
        " network closed, our server closed, sockets closed, peers closed, nested pages closed, workers closed"
    )
    await person.page.evaluate("document.querySelector('iframe').contentWindow.postMessage('leave', '*')")
    await expect(told).to_have_count(0)
    await expect(person.button("Close panel")).to_be_visible()
    assert await person.page.evaluate("[window.hurt, localStorage.getItem('hurt'), document.cookie]") == [
        None,
        None,
        "",
    ]
    assert len(person.page.context.pages) == 1
    # Chromium connects to where a frame wants to go before it finds that it may not; nothing is sent there.
    assert [visit for visit in stranger.visits if visit not in ("connected", repr(b""))] == []
