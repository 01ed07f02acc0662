"""What T-GCN's rows say of its claims: claim id -> check."""
