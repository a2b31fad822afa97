"""From the spans of a trace to its committed verdict.

In the order in which a trace passes them:

- ``scheduler`` takes arrivals and decides when a trace is examined; ``arrivals`` is what it remembers.
- ``examine`` is one examination; ``load`` reads the trace and those joined to it.
- ``executor`` chooses where a trace is prepared. ``pool``, ``worker_process`` and ``codec`` are the service's
  side of the worker processes, ``worker`` is such a process.
- ``prepare`` turns bytes into runs with their steps and, if no model is needed, their analysis; ``prepared``
  holds the records of that.
- ``analyst`` is triage and attribution of a run; ``local_analyst`` imports it when it is first needed, and
  ``opinions`` asks it by a person's choice. ``consulting`` runs the steps between a model's answers,
  ``models`` calls models, ``job_client`` asks other machines instead.
- ``run_comparison`` corrects a finding by labels and other runs.
- ``commit`` decides, commits, then sends.

``early`` warns of runs that have not ended. ``composition`` builds parts from settings, also for commands.
"""
