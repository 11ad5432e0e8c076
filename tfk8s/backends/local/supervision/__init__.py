"""The requests to the supervisor of a local cluster, and what the supervisor tells scripts."""
