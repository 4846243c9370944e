"""Keeps what is wanted of the resources of servers, and brings it to each new session."""
