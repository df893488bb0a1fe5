"""What looks into models, on the backend of Keras that ``KERAS_BACKEND`` names.

Runs those tests of it that are about Keras, in a process of its own.
"""

import sys

import pytest

if __name__ == "__main__":
    tests = ["test_effective_path.py", "test_looking_tools.py"]
    chosen = "keras and (loops or norms or steering or modules)"
    sys.exit(pytest.main([*tests, "-q", "-k", chosen, "-p", "no:cacheprovider"]))
