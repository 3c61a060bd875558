"""What a person reads of a job: the report as text, JSON and HTML, logs, pictures and figures."""
