"""The built-in pre-checks, one file each. A check says what it found of the machine; nothing is decided here."""
