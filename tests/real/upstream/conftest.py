"""The tests here run in an engine's interpreter, where torch and SGLang are: see tests/real/test_allocator_edge.py."""

collect_ignore_glob = ["test_*.py"]
