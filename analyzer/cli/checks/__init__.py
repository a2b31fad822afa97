"""Checks of ``doctor``: of this machine, of its neighbours and of Kafka."""
