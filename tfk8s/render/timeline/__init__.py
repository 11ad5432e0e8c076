"""Recorded steps as text: a page of HTML, and a Chrome trace."""
