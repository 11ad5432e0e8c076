"""Rooms for what a project can do without: each has its command, and its halves here and in pods."""
