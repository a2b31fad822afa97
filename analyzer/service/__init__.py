"""The parts of the service, each started by one function; ``all_in_one.py`` composes them."""
