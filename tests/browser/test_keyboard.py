"""Complete tasks with the keyboard alone."""

from typing import Any

import pytest
from browsing.person import Person
from playwright.async_api import Locator, expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

SALES = {"name": "sales.csv", "mimeType": "text/csv", "buffer": b"region,revenue\nNorth,1200\n"}


async def press(person: Person, target: Locator, key: str = "Enter") -> None:
    """Moves the focus there with Tab, checks that it is visible, and presses the key."""
    await person.tab_to(target)
    assert await target.evaluate("element => getComputedStyle(element).outlineStyle") != "none"
    await person.page.keyboard.press(key)


async def choose(person: Person, item: str) -> None:
    """An item of the menu of the first conversation in the list."""
    await press(person, person.page.get_by_role("button", name="Actions for").first)
    menu = person.page.get_by_role("menu")
    await expect(menu).to_be_visible()
    target = menu.get_by_role("menuitem", name=item)
    for _ in range(await menu.get_by_role("menuitem").count()):
        if await target.evaluate("element => element === document.activeElement"):
            break
        await person.page.keyboard.press("ArrowDown")
    await person.page.keyboard.press("Enter")


@pytest.mark.slow
async def test_start_a_conversation_with_a_file_and_rate_the_result(person: Person, harness: Any) -> None:
    keyboard = person.page.keyboard
    await press(person, person.button("New conversation"))
    async with person.page.expect_file_chooser() as chooser:
        await press(person, person.button("Attach files"))
    await (await chooser.value).set_files(files=[SALES])
    await expect(person.page.get_by_role("list", name="Files to send")).to_contain_text("sales.csv")
    await expect(person.field).to_be_focused()
    await keyboard.type("script:note please")
    await keyboard.press("Enter")
    await expect(person.field).to_have_value("")
    await person.finish()

    await press(person, person.reply.get_by_role("button", name="Open outputs/note.md"))
    panel = person.page.get_by_role("complementary", name="outputs/note.md")
    await expect(panel.get_by_role("heading", name="Note", exact=True)).to_be_visible()
    await keyboard.press("Escape")
    await expect(panel).to_have_count(0)
    await expect(person.reply.get_by_role("button", name="Open outputs/note.md")).to_be_focused()
    await press(person, person.button("Good answer"))
    await press(person, person.page.get_by_label("What could be better?"), "End")
    await keyboard.type("Short and right.")
    await keyboard.press("Enter")

    await expect(person.reply).to_contain_text("Short and right.")
    (turn,) = (await harness.clients[0].fetch(await person.read_conversation_id())).turns
    assert [file.filename for file in turn.attachments] == ["sales.csv"]
    assert [(judged.reaction, judged.text) for judged in turn.feedback] == [("ok", "Short and right.")]


async def test_redirect_and_stop_a_turn(person: Person, harness: Any) -> None:
    keyboard = person.page.keyboard
    await person.tab_to(person.field)
    await keyboard.type("script:endless please")
    await keyboard.press("Enter")
    await expect(person.reply).to_contain_text("One two three")
    await person.tab_to(person.field)
    await keyboard.type("script:endless, the other way")

    await press(person, person.button("Redirect"))
    await expect(person.page.get_by_role("group", name="You redirected this answer")).to_contain_text("Delivered")
    await expect(person.reply).to_contain_text("Left it.")
    await person.finish()
    await person.tab_to(person.field)
    await keyboard.type("script:endless once more")
    await keyboard.press("Enter")
    await expect(person.turns).to_have_count(2)
    await expect(person.reply).to_contain_text("One two three")
    await keyboard.press("Escape")

    await person.finish()
    state = await harness.clients[0].fetch(await person.read_conversation_id())
    assert [turn.outcome for turn in state.turns] == ["completed", "stopped"]


async def test_rename_and_delete_a_conversation(person: Person, harness: Any) -> None:
    keyboard = person.page.keyboard
    await person.send("script:plain, to be renamed")
    await person.finish()
    conversation_id = await person.read_conversation_id()
    await expect(person.page.get_by_role("button", name="Actions for").first).to_have_accessible_name(
        "Actions for script:plain, to be renamed"
    )

    await choose(person, "Rename")
    await expect(person.page.get_by_role("dialog").get_by_role("textbox")).to_be_focused()
    await keyboard.press("ControlOrMeta+a")
    await keyboard.type("Named by keyboard")
    await keyboard.press("Enter")
    await expect(person.page.get_by_role("link", name="Named by keyboard")).to_be_visible()
    assert (await harness.clients[0].fetch(conversation_id)).conversation.title == "Named by keyboard"
    await choose(person, "Delete")
    await press(person, person.page.get_by_role("alertdialog").get_by_role("button", name="Delete"))

    await expect(person.page.get_by_role("link", name="Named by keyboard")).to_have_count(0)
    await expect(person.page.get_by_role("heading", level=1)).to_have_text("What would you like to work on?")
    listed = await harness.clients[0].list_conversations()
    assert conversation_id not in {each.conversation_id for each in listed.items}
