"""Presents a job to people: reports as text, JSON and HTML, logs, swimlanes (time charts of ranks) and statistics."""
