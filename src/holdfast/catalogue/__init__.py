"""Data tables of the meanings of exit codes, log lines and fault codes. They are loaded once, and checked then."""
