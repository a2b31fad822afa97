"""Experiments: rerun a recorded workflow with one answer changed, to see if it would have succeeded.

``sequential`` compares two arms after any number of trials, ``candidates`` defines what each arm replays,
``walk`` chooses the next trial, ``conduct`` runs trials within the budget of ``ledger``, ``workflow`` starts
the user's workflow.
"""
