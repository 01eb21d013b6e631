"""Who is told: what an alert says, and how Slack, Discord and webhooks spell it."""
