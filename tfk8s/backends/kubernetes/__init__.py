"""The Kubernetes backend: clusters of pods, in a Kubernetes cluster of the kubeconfig."""
