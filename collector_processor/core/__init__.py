"""What the rooms above share: words and mechanisms that belong to none of them. Imports ``otlp`` alone."""
