"""Messages to a running turn: stop, add, redirect, edit and withdraw."""

from pathlib import Path
from typing import Any

import pytest
from browsing.person import Person
from playwright.async_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

BEGIN = "One two three"


async def begin_waiting(person: Person) -> None:
    """A turn whose tool waits at the gate and reports it."""
    await person.send("script:gate please")
    await expect(person.reply).to_contain_text("before the gate first")


async def test_a_turn_is_stopped_while_it_runs(person: Person, harness: Any) -> None:
    await person.send("script:endless please")
    await expect(person.reply).to_contain_text(BEGIN)

    await person.button("Stop").click()

    await person.finish()
    await expect(person.reply.get_by_text("You stopped this answer.")).to_be_visible()
    state = await harness.clients[0].fetch(await person.read_conversation_id())
    assert [turn.outcome for turn in state.turns] == ["stopped"]


async def test_a_message_to_a_running_turn_gets_a_receipt(person: Person, harness: Any, gates: Path) -> None:
    await begin_waiting(person)

    await person.send("And mind the south.")

    receipt = person.page.get_by_role("group", name="You added a message", exact=True)
    await expect(receipt).to_contain_text("And mind the south.")
    await expect(receipt).to_contain_text("Sent")
    (gates / "first").touch()
    await expect(receipt).to_contain_text("Delivered")
    await expect(person.reply).to_contain_text("It heeds what was added.")
    state = await harness.clients[0].fetch(await person.read_conversation_id())
    assert [signal.state for turn in state.turns for signal in turn.signals] == ["applied"]


async def test_a_redirected_turn_keeps_its_work(person: Person, harness: Any) -> None:
    await person.send("script:endless please")
    await expect(person.reply).to_contain_text(BEGIN)

    await person.field.fill("Only the south, in short.")
    await person.button("Redirect").click()

    receipt = person.page.get_by_role("group", name="You redirected this answer", exact=True)
    await expect(receipt).to_contain_text("Only the south, in short.")
    await expect(person.reply).to_contain_text("Left it.")
    state = await harness.clients[0].fetch(await person.read_conversation_id())
    assert [(signal.kind, signal.state) for turn in state.turns for signal in turn.signals] == [("steer", "applied")]


async def test_a_message_delivered_with_a_stop_says_so_after_a_reload(person: Person) -> None:
    await begin_waiting(person)
    await person.send("And mind the south.")
    receipt = person.page.get_by_role("group", name="You added a message", exact=True)
    await expect(receipt).to_contain_text("Sent")

    await person.button("Stop").click()

    await person.finish()
    await expect(receipt).to_contain_text("Delivered, but the answer was stopped")
    await person.page.reload()
    await expect(receipt).to_contain_text("Delivered, but the answer was stopped")


async def test_escape_in_an_edit_does_not_stop_the_answer(person: Person, harness: Any, gates: Path) -> None:
    await begin_waiting(person)
    await person.send("And mind the south.")

    await person.button("Edit").click()
    editor = person.page.get_by_role("textbox", name="Edit your message")
    await expect(editor).to_be_focused()
    await person.page.keyboard.type(" Or not.")
    await expect(editor).to_have_value("And mind the south. Or not.")
    await person.page.keyboard.press("Escape")

    await expect(person.page.get_by_role("textbox", name="Edit your message")).to_have_count(0)
    (gates / "first").touch()
    await person.finish()
    (turn,) = (await harness.clients[0].fetch(await person.read_conversation_id())).turns
    assert turn.outcome == "completed"
    assert [(signal.kind, signal.text) for signal in turn.signals] == [("followup", "And mind the south.")]


async def test_an_unsaved_edit_of_a_delivered_message_moves_to_the_field(person: Person, gates: Path) -> None:
    await begin_waiting(person)
    await person.send("And mind the south.")
    await person.button("Edit").click()
    await person.page.keyboard.type(" Or not.")

    (gates / "first").touch()

    await expect(person.field).to_have_value("And mind the south. Or not.")
    notice = person.page.get_by_role("alert").filter(has_text="was delivered before your edit was saved")
    await expect(notice).to_be_visible()
    await expect(person.field).to_be_focused()
    receipt = person.page.get_by_role("group", name="You added a message", exact=True)
    await expect(receipt).to_have_text("And mind the south.Delivered")
    await person.finish()
    await person.page.reload()
    await expect(person.field).to_have_value("And mind the south. Or not.")


async def test_a_queued_message_is_edited_and_withdrawn(person: Person, harness: Any, gates: Path) -> None:
    await begin_waiting(person)
    await person.send("And mind the south.")
    added = person.page.get_by_role("group", name="You added a message", exact=True)
    await expect(added).to_have_count(1)
    await person.send("And be brief.")
    await expect(added).to_have_count(2)

    await added.first.get_by_role("button", name="Edit").click()
    await person.page.get_by_role("textbox", name="Edit your message").fill("And mind the north.")
    await person.button("Save").click()
    await expect(added.first).to_contain_text("And mind the north.")
    await added.last.get_by_role("button", name="Retract").click()
    await expect(added.last).to_contain_text("Retracted")
    (gates / "first").touch()

    await person.finish()
    state = await harness.clients[0].fetch(await person.read_conversation_id())
    said = [(signal.text, signal.state) for turn in state.turns for signal in turn.signals]
    assert said == [("And mind the north.", "applied"), ("And be brief.", "retracted")]
