"""A job file from nothing, from a script or from a TFJob."""
