"""What a person sees: the command line, and the report as text, JSON and HTML."""
