"""Scripts that run again when a file of their folder changes."""
