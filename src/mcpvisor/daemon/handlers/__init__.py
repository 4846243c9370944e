"""The handlers: whoever is told of events, or answers questions, outside of the daemon."""
