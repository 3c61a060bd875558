"""The place where the parts of a run meet: event → record → explain → decide → act; and the commands' entry points."""
