"""The start of each Python process of a cluster in this machine's own network: the folder is on PYTHONPATH."""
