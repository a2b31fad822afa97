"""An analysis asked of another process: client, server and what they say to each other."""
