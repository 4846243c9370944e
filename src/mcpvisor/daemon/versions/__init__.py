"""Which version of each server's entry is good, which is on trial, and what becomes of one that does not become ready."""
