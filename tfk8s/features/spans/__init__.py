"""Spans of OpenTelemetry for each command and its parts."""
