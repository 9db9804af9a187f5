"""Several methods on equal terms: arms, budgets, running, and their table."""
