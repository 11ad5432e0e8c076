"""Code that runs a script as the program of a task."""
