"""The subject: keeps every connection to an MCP server at its declared goal."""
