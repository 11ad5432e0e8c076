"""The cluster that sessions see."""
