"""Volumes and claims: data that outlives tasks."""
