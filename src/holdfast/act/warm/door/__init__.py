"""The directory that the nursery has in front of its module search path: nothing else may lie here."""
