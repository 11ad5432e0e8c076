"""Clusters in this machine's own network, whose ports take connections from its loopback device alone."""
