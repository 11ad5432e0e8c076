"""A span of OpenTelemetry for each command."""
