"""The local backend: clusters of processes on this machine."""
