"""What can be set: the table of settings, the kinds of their values, and which source gave each its value."""
