"""Runs beside or inside a session. Standard library and TensorFlow only."""
