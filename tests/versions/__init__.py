"""Runs chosen tests with each version of TensorFlow, Python, Kubernetes and Helm, and writes docs/compatibility.md."""
