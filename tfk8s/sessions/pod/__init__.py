"""Code that only runs in the pod of a session script."""
