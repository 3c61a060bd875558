"""Holdfast's persistent state: the journal, the job directories, and the views over both."""
