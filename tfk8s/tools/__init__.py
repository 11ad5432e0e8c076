"""Tools around clusters: the checks of `doctor`, images, and kind clusters."""
