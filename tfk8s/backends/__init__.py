"""Clusters live in backends: processes on this machine, pods in Kubernetes, or servers that run already."""
