"""Model access: litellm behind one adapter, reply cache, budget."""
