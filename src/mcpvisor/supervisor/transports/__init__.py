"""The wires to MCP servers: one JSON-RPC dispatcher for each transport."""
