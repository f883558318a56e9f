"""HTTP to a SGLang server, and what its answers say."""
