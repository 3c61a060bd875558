"""Data tables with the meanings of exit codes, log lines and fault codes. Each is loaded and checked once."""
