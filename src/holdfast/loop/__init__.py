"""The one place the stations meet: event → record → explain → decide → act; and the doors the command line uses."""
