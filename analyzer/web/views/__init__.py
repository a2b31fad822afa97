"""View models of the pages: what a page shows, as data. Pure."""
