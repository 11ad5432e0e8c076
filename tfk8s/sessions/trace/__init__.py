"""Code that records steps of a script's sessions."""
