"""Parsers of what servers, pods and files of others send, against hostile bytes."""
