"""What programs receive, as types: the JSON of commands, API and Python client."""
