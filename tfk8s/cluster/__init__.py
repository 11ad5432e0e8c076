"""The handle that users hold on a cluster, the same for every backend."""
