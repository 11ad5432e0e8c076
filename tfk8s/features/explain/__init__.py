"""The fields of job files in words."""
