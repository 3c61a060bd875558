"""holdfast's stored state: the journal, the job directories, and the lists of jobs that are read from them."""
