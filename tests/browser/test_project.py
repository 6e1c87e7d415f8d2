"""The project beside a conversation: its commits, their changes and files, and how to clone it."""

import pytest
from browsing.accessibility import find_violations
from browsing.person import Person
from browsing.users import BrowserUsers
from playwright.async_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def write_project(person: Person) -> None:
    """Two turns that write files."""
    await person.send("script:project please")
    await person.finish()
    await expect(person.button("Project")).to_be_visible()
    await person.send("script:amend please")
    await person.finish()


async def test_a_project_shows_its_commits_changes_and_files(person: Person) -> None:
    await person.send("script:plain please")
    await person.finish()
    await expect(person.button("Project")).to_have_count(0)
    await write_project(person)
    await person.button("Project").click()
    panel = person.page.get_by_role("complementary", name="Project")
    commits = panel.get_by_role("list", name="Commits").get_by_role("button")
    await expect(commits).to_have_count(2)
    assert await find_violations(person.page) == []

    await commits.filter(has_text="script:amend").click()

    changed = panel.get_by_role("region", name="Changes of notes.txt")
    await expect(changed.get_by_role("row", name="Removed Two")).to_be_visible()
    await expect(changed.get_by_role("row", name="Added Three")).to_be_visible()
    assert await find_violations(person.page) == []
    await panel.get_by_role("button", name="Open the file").click()
    await expect(panel.get_by_role("region", name="notes.txt")).to_contain_text("One\nThree")
    await panel.get_by_role("button", name="Back to all files").click()
    await panel.get_by_role("button", name="src").click()
    await panel.get_by_role("button", name="page.html").click()
    await expect(panel.get_by_role("region", name="src/page.html")).to_contain_text("<script>")
    assert await find_violations(person.page) == []
    async with person.page.expect_download() as started:
        await panel.get_by_role("button", name="Download page.html").click()
    assert (await started.value).suggested_filename == "page.html"
    await panel.get_by_role("tab", name="Clone").click()
    address = f"{person.url}conversations/default/default/{await person.read_conversation_id()}/workspace.git"
    await expect(panel.get_by_role("figure", name="Code, bash")).to_contain_text(f"git clone {address}")
    assert await find_violations(person.page) == []
    assert await person.page.evaluate("window.hurt") is None


async def test_a_project_is_read_by_keyboard_and_fits_a_phone(users: BrowserUsers) -> None:
    person = await users.open_page(viewport={"width": 320, "height": 640})
    await write_project(person)
    panel, keyboard = person.page.get_by_role("complementary", name="Project"), person.page.keyboard

    await person.tab_to(person.button("Project"))
    await keyboard.press("Enter")
    await person.tab_to(panel.get_by_role("tab", name="Commits"))
    await keyboard.press("ArrowRight")
    await expect(panel.get_by_role("region", name="Changes of notes.txt")).to_be_visible()
    await keyboard.press("ArrowRight")
    await person.tab_to(panel.get_by_role("button", name="src"))
    await keyboard.press("Enter")
    await person.tab_to(panel.get_by_role("button", name="page.html"))
    await keyboard.press("Enter")

    await expect(panel.get_by_role("heading", name="src/page.html")).to_be_focused()
    assert await person.page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [320, 320]
    await keyboard.press("Escape")
    await expect(panel).to_have_count(0)
    await expect(person.button("Project")).to_be_focused()
