"""What judges a job: events are journalled, the gang decides, reports are written."""
