"""Tools of the order desk."""

from everturn_sdk import ToolContext, ToolError, tool


@tool(effect="idempotent", requires_approval=True)
async def credit(order: int, amount: float, reason: str, context: ToolContext) -> str:
    """Credits a customer, after a person has approved it.

    `amount` is in euros. The result is a credit note, a file that the person gets. Crediting the same order again in
    the same turn replaces its credit note.
    """
    if amount <= 0:
        raise ToolError("The amount must be more than 0 euros.")
    context.progress(f"Writing the credit note for order {order}.")
    note = f"# Credit note for order {order}\n\nAmount: {amount:.2f} EUR\n\nReason: {reason}\n"
    await context.put_artifact(f"outputs/credit-{order}.md", note)
    return f"Credited {amount:.2f} EUR for order {order}."
