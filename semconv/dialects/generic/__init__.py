"""Reader of agent traces that no dialect knows: it infers from structure and values."""
