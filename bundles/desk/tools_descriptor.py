"""The tools of the order desk: its own, and those of the server that `bundle.toml` describes."""

TOOLS_SPECS = [{"ref": "tools/desk.py", "alias": "desk"}]
MCP_TOOL_SPECS = [{"server_id": "orders", "alias": "orders", "tools": ["find_order", "list_orders"]}]
