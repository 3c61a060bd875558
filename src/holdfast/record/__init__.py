"""What holdfast remembers: the journal, the job directories, and the views over both."""
