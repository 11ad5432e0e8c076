"""The commands that are groups of commands."""
