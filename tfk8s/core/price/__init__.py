"""Money: what tasks cost."""
