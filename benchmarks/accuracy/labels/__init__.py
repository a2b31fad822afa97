"""Labels: which runs to ask about, and when a new ranker takes over."""
