"""What happens: the verbs, and the only place where their order is written down."""
