"""The owner of a job: it writes events to the journal, runs the gang and writes the reports."""
