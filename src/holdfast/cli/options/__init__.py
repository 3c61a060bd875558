"""Parses command lines: the verbs, their options, their completion, and the messages about mistakes."""
