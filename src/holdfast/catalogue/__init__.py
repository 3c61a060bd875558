"""Tables with the meanings of exit codes, log lines and fault codes. Each table is loaded and checked once."""
