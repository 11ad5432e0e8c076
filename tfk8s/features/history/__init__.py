"""The entries of clusters that ran, listed, shown and compared."""
