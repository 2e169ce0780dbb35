"""Launch rules: how each kernel family turns a problem and a variant into launch records."""
