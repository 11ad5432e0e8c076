"""The declaration of a job file's keys, and the mappings among its values."""
