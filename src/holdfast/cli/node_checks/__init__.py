"""`holdfast check`: the result as a table, and the check that a platform's hook starts."""
