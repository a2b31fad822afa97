"""What a workflow's invariants find in runs with labelled faults, and how many good runs they accuse."""
