"""Scripts in pods: their Job, their folder and files, their end."""
