"""The way to an API server: connection, requests, retries, watches, streams and errors in plain words."""
