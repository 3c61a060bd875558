"""Settings: their table, the kinds of their values, and the source of each value."""
