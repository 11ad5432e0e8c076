"""The stream between a script in a pod and `submit`: frames, which survive the break of a connection."""
