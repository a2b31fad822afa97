"""Where the store is and how it is used: drivers, connections, one thread, upgrades from older files."""
