"""Tools in the formats of model providers. Pure conversions without look-ups."""
