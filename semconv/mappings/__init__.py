"""Mappings: data files that say what the attributes of spans without a dialect mean."""
