"""Engines: SGLang installations, and how one is launched, watched and stopped.

Import from the modules: this file stays empty of imports so that the warden, a tiny process, starts at once.
"""
