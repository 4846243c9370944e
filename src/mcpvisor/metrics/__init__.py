"""Observation: events of the supervisor in, Prometheus families out."""
