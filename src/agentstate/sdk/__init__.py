"""What runs in the agent's process: thin wrappers that tell a client where the proxy is and what session it works on.

Must not: import anything of AgentState but its errors, or import a framework before it is asked for.
Invariant: a wrapper adds an address and a few headers; it never changes a request's body or an answer.
"""
