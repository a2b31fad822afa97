"""Several processors behind Kafka: disturbances, CPU time and scaling."""
