"""Servers that do not answer a process of a task or a script."""
