"""The history of what ran: its facts, its summary, and what never gets into it."""
