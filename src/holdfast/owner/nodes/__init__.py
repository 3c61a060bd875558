"""The processes of a job over many nodes: a guard on each node, an owner beside one of them, an agent below each."""
