"""Floor 2: the verbs. Knows the adapters by their Protocols and classes; no click, rich, SQL or SDK here."""
