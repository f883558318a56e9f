"""The only code of lastpage that runs inside SGLang.

Imports here are limited to the standard library, torch, prometheus_client and sglang, and are relative within the
package, so that the folder works under any package name. At launch `service.engine.overlay` copies it, as
`lastpage_plugin`, onto the engine's `PYTHONPATH`.
"""
