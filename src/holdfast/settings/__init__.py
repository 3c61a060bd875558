"""Settings: their table, the kinds of their values, and the source that gave each its value."""
