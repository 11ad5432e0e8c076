"""The folder of programs, in Secrets."""
