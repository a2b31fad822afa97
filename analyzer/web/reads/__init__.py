"""Read access of the pages to runs, verdicts and issues."""
