"""Inserts stages into frames, and has every node read what S3 says."""
