"""Who answers: providers, one attempt over HTTP, prices, and a simulator. No retries and no journal here."""
