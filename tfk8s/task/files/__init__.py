"""Files on their way between pods and the user's machine."""
