"""Access to the store: drivers, connections, one thread, upgrades from older files."""
