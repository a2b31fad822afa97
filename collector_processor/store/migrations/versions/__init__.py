"""The migrations of older stores, oldest first."""
