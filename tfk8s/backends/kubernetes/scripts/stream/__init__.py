"""The stream between commands and the pods of scripts and programs: the half of this machine."""
