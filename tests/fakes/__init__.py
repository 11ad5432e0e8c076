"""Stand-ins for what tests must not start: a backend, an API server, a TensorFlow server."""
