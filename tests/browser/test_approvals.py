"""A call that needs approval: shown with all its parameters, answered once, in all tabs."""

from typing import Any

import pytest
from browsing.person import Person
from playwright.async_api import Locator, expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def find_question(person: Person) -> Locator:
    return person.page.get_by_role("region", name="Approval of mail.send")


async def ask(person: Person) -> Locator:
    """The approval card of a waiting turn."""
    await person.send("script:mail please")
    question = find_question(person)
    await expect(question).to_contain_text("ann@example.org")
    await expect(person.reply).to_contain_text("Waiting for your approval.")
    return question


async def test_a_waiting_conversation_is_named_by_its_first_words(person: Person) -> None:
    await ask(person)

    await expect(person.page.get_by_role("heading", level=1, name="script:mail please")).to_be_visible()
    await expect(person.page).to_have_title("script:mail please · Everturn")
    # Other tests have sent the same message.
    row = person.page.get_by_role("link", name="script:mail please").and_(person.page.locator("[aria-current=page]"))
    await expect(row).to_contain_text("needs approval")
    await expect(person.reply.get_by_role("button", name="Step mail.send, needs approval")).to_be_visible()
    await person.page.reload()
    await expect(row).to_contain_text("needs approval")


async def test_an_approved_call_is_made(person: Person, harness: Any) -> None:
    question = await ask(person)

    await question.get_by_role("button", name="Approve").click()

    await expect(person.reply).to_contain_text("That is settled.")
    await expect(question).to_have_count(0)
    await expect(person.reply).to_contain_text("mail.send was approved.")
    await person.reply.get_by_role("button", name="Step mail.send, done").click()
    await expect(person.reply).to_contain_text("characters to ann@example.org")
    await expect(
        person.reply.get_by_role("button", name="Copy answer")
    ).to_be_visible()  # only of a turn that has ended
    (turn,) = (await harness.clients[0].fetch(await person.read_conversation_id())).turns
    assert [(approval.state, turn.answer) for approval in turn.approvals] == [("approved", "That is settled.")]


async def test_a_denied_call_is_not_made_and_its_reason_is_shown(person: Person, harness: Any) -> None:
    question = await ask(person)

    await question.get_by_label("Reason (optional)").fill("Not today.")
    await question.get_by_role("button", name="Deny").click()

    await expect(person.reply).to_contain_text("mail.send was denied: Not today.")
    await expect(person.reply).to_contain_text("That is settled.")
    await expect(person.reply.get_by_role("button", name="Step mail.send, done")).to_have_count(0)
    (turn,) = (await harness.clients[0].fetch(await person.read_conversation_id())).turns
    assert [(approval.state, approval.reason) for approval in turn.approvals] == [("denied", "Not today.")]


async def test_an_answer_in_one_tab_shows_in_the_other(person: Person) -> None:
    await ask(person)
    other = await person.open_tab()
    await expect(find_question(other)).to_contain_text("ann@example.org")

    await find_question(other).get_by_role("button", name="Approve").click()

    for each in (other, person):
        await each.look()
        await expect(each.reply).to_contain_text("mail.send was approved.")
        await expect(each.reply).to_contain_text("That is settled.")
        await expect(find_question(each)).to_have_count(0)


async def test_an_approval_survives_a_reload_and_its_markup_is_text(person: Person) -> None:
    await ask(person)

    await person.page.reload()

    question = find_question(person)
    await expect(question).to_contain_text("<img src=x onerror=window.hurt=1>")
    await question.get_by_role("button", name="Deny").click()
    await expect(person.reply).to_contain_text("That is settled.")
    assert await person.page.evaluate("window.hurt") is None
