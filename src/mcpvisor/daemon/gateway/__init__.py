"""The gateway: one MCP endpoint in front of all servers."""
