"""Holdfast's persistent state: the journal, the job directories, and views of both."""
