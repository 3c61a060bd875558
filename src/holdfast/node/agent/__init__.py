"""The agent of a node: the process that carries out the commands of the job's owner. The owner may run on another
machine.
"""
