"""Runs the process that fetches a job's prerequisites before its workers start, for a node or `holdfast prepare`."""
