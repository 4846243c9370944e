"""The command line: thin verbs that talk to a running daemon, and the daemon's own entry."""
