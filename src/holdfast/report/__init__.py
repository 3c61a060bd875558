"""Presents a job to people: the report as text, JSON and HTML, logs, swimlanes and statistics."""
