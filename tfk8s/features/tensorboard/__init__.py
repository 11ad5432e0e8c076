"""TensorBoard's page."""
