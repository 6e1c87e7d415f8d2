"""Signing in with a credential, or as a guest where the operator allows guests."""

import pytest
from browsing.person import Person
from playwright.async_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def test_a_guest_session_lasts_as_long_as_the_tab(person: Person) -> None:
    await person.wear_out("default/default")

    await person.button("Continue as guest").click()
    await expect(person.page.get_by_text("No conversations yet.")).to_be_visible()
    await person.send("script:plain as a guest")
    await person.finish()
    await person.page.reload()

    await expect(person.reply).to_contain_text("A plain answer.")
    await person.button("Sign out").click()
    await expect(person.page.get_by_role("heading", name="Sign in to Everturn")).to_be_visible()


async def test_guest_access_is_not_offered_where_it_is_disabled(person: Person) -> None:
    await person.page.goto(f"{person.url}#/other/one")

    async with person.page.expect_response("**/guests/other/one") as asked:
        await person.wear_out("other/one")

    assert (await asked.value).status == 404
    await expect(person.page.get_by_label("Token or API key")).to_be_visible()
    await expect(person.button("Continue as guest")).to_have_count(0)


async def test_a_rejected_credential_is_reported(person: Person) -> None:
    await person.wear_out("default/default")
    await expect(person.page.get_by_role("alert")).to_contain_text("no longer accepted")

    await person.page.get_by_label("Token or API key").fill("wrong")
    await person.button("Sign in").click()

    await expect(person.page.get_by_role("alert")).to_contain_text("was not accepted")
    await expect(person.page.get_by_label("Token or API key")).to_have_value("wrong")


async def test_an_impossible_credential_is_refused_before_it_is_sent(person: Person) -> None:
    await person.wear_out("default/default")

    await person.page.get_by_label("Token or API key").fill("two words")
    await person.button("Sign in").click()

    await expect(person.page.get_by_role("alert")).to_contain_text("without spaces")
