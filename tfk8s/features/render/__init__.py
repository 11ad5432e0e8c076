"""The Kubernetes objects of a job file, and what their pods run."""
