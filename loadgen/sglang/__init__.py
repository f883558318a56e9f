"""What SGLang does: pages, limits, rules of admission, retraction and eviction, releases. Nothing else says it."""
