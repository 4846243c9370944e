"""What `mcpvisor doctor` looks at: the machine, what the daemon stands on, and each entry."""
