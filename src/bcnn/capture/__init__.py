"""What a torch module computes: one recorded forward pass, read by audit, count and lower."""
