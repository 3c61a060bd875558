"""Statistics over many jobs: how their time was spent, failures by frequency, time to recover. Pure functions."""
