"""Restarts of programs of several pods together."""
