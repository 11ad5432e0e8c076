"""Notebooks: JupyterLab on this machine, with kernels whose sessions run on a cluster."""
