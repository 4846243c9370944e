"""mcpvisor, the init system for MCP servers: this package holds its three parts and its version."""

__version__ = "0.1.0"
