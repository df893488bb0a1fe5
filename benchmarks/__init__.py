"""What Amanda costs, beside the frameworks' own means and other libraries; see ``README.md``."""
