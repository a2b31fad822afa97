"""Access to the store: drivers, connections, one thread, upgrades of the schema."""
