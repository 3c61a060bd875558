"""From typed words or a job file to a `LaunchSpec`. This package starts no process."""
