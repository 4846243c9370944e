"""The state store: what outlives the daemon, in one SQLite file that a thread of its own writes."""
