"""Finds jobs in a queue, in a cluster or on another node, and limits the number of old jobs."""
