"""The settings: a table of all settings, the kinds of their values, and the source of each value."""
