"""An MCP server for orders, without libraries: each line is a JSON-RPC message. It reads orders.json."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
ORDERS = json.loads(Path(__file__).with_name("orders.json").read_text())
METHOD_NOT_FOUND, INVALID_PARAMS = -32601, -32602


def find_order(number: int) -> Any:
    found = [order for order in ORDERS if order["number"] == number]
    return found[0] if found else f"There is no order {number}."


def list_orders(customer: str) -> Any:
    return [order for order in ORDERS if customer.casefold() in order["customer"].casefold()]


TOOLS: Mapping[str, tuple[Callable[..., Any], str, Mapping[str, Any]]] = {
    "find_order": (find_order, "Finds an order by its number.", {"number": {"type": "integer"}}),
    "list_orders": (list_orders, "Lists the orders of customers with this name.", {"customer": {"type": "string"}}),
}


def describe(name: str) -> dict[str, Any]:
    _, description, properties = TOOLS[name]
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def answer(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result of a request. Raises LookupError for an unknown method or tool, TypeError for wrong arguments."""
    match method:
        case "initialize":
            asked = params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "orders", "version": "1"},
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [describe(name) for name in TOOLS]}
        case "tools/call":
            function, _, _ = TOOLS[params["name"]]
            result = function(**params.get("arguments", {}))
            text = result if isinstance(result, str) else json.dumps(result)
            return {"content": [{"type": "text", "text": text}], "isError": isinstance(result, str)}
        case _:
            raise NotImplementedError(f"unknown method {method}")


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue  # a notification
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(request["method"], request.get("params") or {})
        except NotImplementedError as error:
            reply["error"] = {"code": METHOD_NOT_FOUND, "message": str(error)}
        except (LookupError, TypeError) as error:
            reply["error"] = {"code": INVALID_PARAMS, "message": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
