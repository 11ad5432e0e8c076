"""The record of a cluster in a shared history, which the pod of the cluster's own Job writes."""
