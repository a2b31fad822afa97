"""Raw OTLP bytes: protobuf fields, ids, scan for agents, split, filter. Nothing is decoded."""
