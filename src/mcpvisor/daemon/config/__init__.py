"""Configuration: files in, settings and server specs out, with errors that name the place."""
