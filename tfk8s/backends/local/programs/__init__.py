"""The programs of a local cluster, and their run."""
