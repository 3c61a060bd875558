"""The process that fetches what a job has before its workers, as its node and `holdfast prepare` see it."""
