"""Finds the cause: each file explains one kind of end from the clues, and `attribution` finds the culprit. Pure."""
