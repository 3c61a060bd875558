"""The owner of a job: it writes events to the journal, manages the gang and writes the reports."""
