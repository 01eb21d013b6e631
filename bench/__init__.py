"""The project's own benchmark: what the proxy adds, what replay takes, what is stored, how fast an agent is back.

Run by ``python -m bench``. Owns its upstream, its load and its peers' processes; must not import ``agentstate``.
Invariant: a figure is a ratio between targets that were measured in turn within one round, or it is not reported.
"""
