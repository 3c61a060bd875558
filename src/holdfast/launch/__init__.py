"""From typed words or a job file to a `LaunchSpec`: nothing is started here."""
