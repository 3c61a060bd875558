"""Sources of device and node faults."""
