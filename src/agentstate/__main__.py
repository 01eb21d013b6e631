"""``python -m agentstate``: the command line."""

from agentstate.cli.main import main

if __name__ == "__main__":
    main()
