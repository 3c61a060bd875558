"""Finds the cause of an attempt's end. Each module explains one kind of end; `attribution` finds the culprit. Pure."""
