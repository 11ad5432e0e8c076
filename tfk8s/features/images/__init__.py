"""Images, and clusters of kind that run them."""
