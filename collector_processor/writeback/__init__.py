"""From verdict to outgoing bytes: carrier spans, added attributes, the evaluation log. Pure."""
