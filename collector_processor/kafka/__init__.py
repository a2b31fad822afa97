"""Kafka as the durable log between acknowledging and forwarding, for several processors.

``publisher`` writes received requests to the topics, one record a trace; ``reader`` is a member of the
consumer group and reads them on a thread of its own; ``custody`` hands what is read to the lanes of this
process, on the event loop. ``progress`` decides which offset may be committed, and ``record_form`` defines
the records. The rows that were read are kept in a journal on disk that only this process reads, and only
while it runs: what a processor has not finished is read again from Kafka by whoever owns the partition next.
No state is moved.
"""
