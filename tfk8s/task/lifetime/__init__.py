"""The cluster's own Job: limits, suspension while idle, disruption budgets, and the record in a shared history."""
