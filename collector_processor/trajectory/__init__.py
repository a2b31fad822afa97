"""A sound trace as ordered steps: which spans are steps, whose, in which order, what is new in each.

``order`` joins the parts: ``acts`` reads spans through the dialects, ``leaves`` drops
containers, ``casting`` says who acted, ``handoffs`` finds transfers, ``parallel`` marks what
overlaps, ``novelty`` leaves repeated history out, ``outline`` finds task, answer and outcome.
"""

from collector_processor.trajectory.order import order

__all__ = ["order"]
