"""What a driver tells and does, which drivers are installed, and what vocabularies there are."""
