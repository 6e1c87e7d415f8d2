"""A turn at the order desk: a case is opened, the agent works on it, and what it has credited is handed to the
accountants with a note that the agent writes. Beside the turns, the widget calls an operation.

Each step takes effect once, also if a worker is lost: docs/how-to/write-a-workflow.md.
"""

import json
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from everturn_sdk import BaseWorkflow, Payload, RunResult, StepAmbiguous, get_plain, operation

CREDIT_NOTE = re.compile(r"outputs/credit-([0-9]{1,12})\.md$")
POST_TIMEOUT_S = 10.0


class Desk(BaseWorkflow):
    def on_bundle_load(self) -> None:
        self.orders = json.loads(Path(__file__).with_name("orders.json").read_text())

    @operation(effect="pure")
    def list_orders(self, customer: str = "") -> list[dict[str, Any]]:
        """Lists the orders of customers with this name, or all."""
        return [order for order in self.orders if customer.casefold() in order["customer"].casefold()]

    async def run(self, payload: Payload) -> RunResult:
        # The time and chance belong into a step: its result is the same when `run` is executed again.
        case = await self.step("open_case", open_case, effect="idempotent")
        react = await self.build_react(scratchpad=self.scratchpad, tools_module="desk.tools_descriptor")
        answer = await react.run(payload)

        orders = await self.step("find_credits", find_credits, [file.ref for file in answer.files], effect="pure")
        if not orders:
            return answer
        is_named = all(str(order) in answer.text for order in orders)
        await self.feedback("ok" if is_named else "not_ok", f"The answer names the credited orders: {is_named}.")
        named = ", ".join(str(order) for order in orders)
        note = await react.run(
            f"Write the note to the accountants for case {case['number']}: the credit for order {named}."
        )
        try:
            await self.step("hand_over", hand_over, {**case, "orders": orders, "note": note.text})
        except StepAmbiguous:
            # The record may have arrived. Its number lets the accountants find out; sending it twice would not.
            print(f"Case {case['number']} may not have reached the accountants.")
        return note


def open_case() -> dict[str, str]:
    return {"number": f"C-{secrets.token_hex(3).upper()}", "opened_at": datetime.now(UTC).isoformat(timespec="seconds")}


def find_credits(refs: Sequence[str]) -> list[int]:
    """The orders for which the agent has made a credit note."""
    return sorted({int(found[1]) for ref in refs if (found := CREDIT_NOTE.search(ref))})


def hand_over(record: dict[str, Any]) -> str:
    """Post the record to the accountants."""
    if not (url := get_plain("accounting_url")):
        print("For the accountants:", json.dumps(record))
        return "logged"
    request = Request(url, json.dumps(record).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=POST_TIMEOUT_S) as response:
        return f"posted: {response.status}"
