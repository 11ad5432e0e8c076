"""Clusters that give their nodes, or the memory of this machine, back for a while."""
