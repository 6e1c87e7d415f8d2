"""Checks every screen with axe: nothing serious or critical, in light and dark, on desktop and phone."""

from pathlib import Path
from typing import Any

import pytest
from browsing.accessibility import find_violations
from browsing.person import Person
from browsing.replies import SALES
from browsing.users import BrowserUsers
from playwright.async_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.slow
async def test_new_conversation_and_conversation_list(person: Person) -> None:
    await person.send("script:plain please")
    await person.finish()
    await person.button("New conversation").click()
    await expect(person.page.get_by_role("heading", level=1)).to_have_text("What would you like to work on?")

    assert await find_violations(person.page) == []

    await person.wait_for_index("please")
    await expect((await person.search("please nothing")).first).to_be_visible()
    await expect(person.page.get_by_text("No matching titles.")).to_be_visible()
    assert await find_violations(person.page) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1024])
async def test_api_page_fits_its_window(users: BrowserUsers, width: int) -> None:
    person = await users.open_page(viewport={"width": width, "height": 640})

    await person.page.goto(f"{person.url}docs")

    await expect(person.page.get_by_role("navigation").get_by_role("heading", name="Calls")).to_be_visible()
    assert await person.page.evaluate("document.documentElement.scrollWidth") <= width
    links = person.page.get_by_role("navigation").get_by_role("link")
    assert await links.evaluate_all("links => links.every(link => link.scrollWidth <= link.parentElement.clientWidth)")


@pytest.mark.slow
async def test_conversation_list_as_a_drawer(users: BrowserUsers) -> None:
    person = await users.open_page(viewport={"width": 390, "height": 780})
    await person.button("Show conversations").click()
    await expect(person.button("Hide conversations")).to_be_visible()

    assert await find_violations(person.page, widths=("phone",)) == []


async def test_answer_with_a_chart_a_table_steps_and_files(person: Person) -> None:
    await person.attach("sales.csv", SALES)
    await person.send("What is the total revenue by region?")
    await expect(person.reply.get_by_role("img", name="sales.png").first).to_be_visible()
    await person.finish()
    await person.reply.get_by_role("button", name="Thought").click()
    await person.reply.get_by_role("button", name="Step").first.click()
    program = person.reply.get_by_role("figure", name="Code, python")
    await expect(program).to_contain_text("import matplotlib.pyplot as plt")
    await expect(program.locator("span[class*=hljs]").first).to_be_visible()
    await expect(program.get_by_role("button", name="Copy code")).to_be_visible()
    await person.button("Good answer").click()
    await expect(person.page.get_by_label("What could be better?")).to_be_visible()

    assert await find_violations(person.page) == []

    await person.button("Open by_region.csv").first.click()
    await expect(person.page.get_by_role("cell", name="West")).to_be_visible()
    assert await find_violations(person.page) == []

    await person.button("Close panel").click()
    await person.button("Show what the model saw").click()
    await person.page.get_by_role("list", name="Parts of the request").get_by_role("button").first.click()
    await expect(person.page.get_by_role("region", name="Cache")).to_be_visible()
    assert await find_violations(person.page) == []


async def test_approval_request_and_its_answer(person: Person) -> None:
    await person.send("script:mail please")
    question = person.page.get_by_role("region", name="Approval of mail.send")
    await expect(question).to_be_visible()

    assert await find_violations(person.page) == []

    await question.get_by_role("button", name="Deny").click()
    await person.finish()
    assert await find_violations(person.page) == []


@pytest.mark.slow
async def test_running_turn_with_a_queued_message_and_a_rejected_file(person: Person, gates: Path) -> None:
    await person.send("script:gate please")
    await expect(person.reply).to_contain_text("before the gate first")
    await person.send("And mind the south.")
    await expect(person.page.get_by_role("group", name="You added a message")).to_contain_text("Sent")
    await person.attach("holiday.png", b"This is no picture.", "image/png")
    await person.offer("Look at this.")
    await expect(person.page.get_by_role("alert")).to_contain_text("holiday.png")

    assert await find_violations(person.page) == []

    (gates / "first").touch()
    await person.finish()


@pytest.mark.slow
async def test_details_in_an_answer_open_by_their_summary(person: Person) -> None:
    await person.send("script:fold please")
    await expect(person.reply.get_by_text("After.")).to_be_visible()
    await person.finish()
    first = person.reply.get_by_text("first")
    await expect(first).to_be_hidden()

    await person.reply.locator("summary", has_text="The whole list").press("Enter")

    await expect(first).to_be_visible()
    await expect(person.reply.get_by_role("figure", name="Code, python")).to_contain_text("print('</details>')")
    assert await find_violations(person.page) == []


@pytest.mark.slow
async def test_plan_sources_and_suggestions(person: Person, harness: Any) -> None:
    await person.send("script:plan please")
    await person.finish()

    assert await find_violations(person.page) == []


@pytest.mark.slow
async def test_generated_page_beside_the_conversation(person: Person) -> None:
    await person.send("script:note please")
    await person.finish()
    await person.reply.get_by_role("button", name="Open outputs/note.md").first.click()
    await expect(person.button("Source")).to_be_visible()

    assert await find_violations(person.page) == []


@pytest.mark.slow
async def test_menu_and_dialogs_of_a_conversation(person: Person) -> None:
    await person.send("script:plain please")
    await person.finish()
    actions = person.page.get_by_role("button", name="Actions for").first

    await actions.click()
    await expect(person.page.get_by_role("menu")).to_be_visible()
    assert await find_violations(person.page, widths=("desktop",)) == []
    await person.page.get_by_role("menuitem", name="Rename").click()
    await expect(person.page.get_by_role("dialog")).to_be_visible()
    assert await find_violations(person.page) == []
    await person.button("Cancel").click()
    await actions.click()
    await person.page.get_by_role("menuitem", name="Delete").click()
    await expect(person.page.get_by_role("alertdialog")).to_be_visible()
    assert await find_violations(person.page) == []


async def test_sign_in_page(person: Person) -> None:
    await person.wear_out("default/default")
    await expect(person.button("Continue as guest")).to_be_visible()

    assert await find_violations(person.page) == []
