"""Load for SGLang's HTTP API, planned by exact page arithmetic. Knows nothing of the service around it."""
