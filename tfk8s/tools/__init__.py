"""Helpers around clusters: checks of what is missing, images, kind clusters."""
