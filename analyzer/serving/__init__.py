"""The parts of the service, each started by one function; ``service.py`` says which there are, and when."""
