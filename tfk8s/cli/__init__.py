"""The command line: flags in, one call of the library, text out, an exit code. It decides nothing."""
