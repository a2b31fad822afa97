"""Backtest: recorded runs replayed with today's code, against the requests of the day they were recorded."""
