"""The built-in pre-checks, one file each. A check reports what it found on the machine; the gate decides."""
