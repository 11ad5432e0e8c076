"""Runs in every task: the TensorFlow server and the way to probe one. Standard library only."""
