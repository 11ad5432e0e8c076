"""Buckets of S3 and Cloud Storage, for pods and commands: objects, limits, signatures, and the keys of pods."""
