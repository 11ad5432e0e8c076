"""The room on the nodes of a Kubernetes cluster, compared with what tasks and scripts request."""
