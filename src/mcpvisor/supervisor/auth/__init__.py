"""The credentials of HTTP servers: where they come from, how they are kept fresh, and how they are told."""
