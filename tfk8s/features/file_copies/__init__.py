"""Copies of files between this machine and the containers of tasks."""
