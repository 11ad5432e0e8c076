"""The metrics of each task for Prometheus."""
