"""Owns the one reason for which a form is put to nobody: it is not understood, so that no answer could be checked."""

from __future__ import annotations


class NotUnderstood(Exception):
    """Something of a requested schema is not of the protocol's subset; the text says what, and is clean."""
