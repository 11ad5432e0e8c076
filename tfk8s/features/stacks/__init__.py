"""The work of tasks and scripts now."""
