"""``python -m amanda_tools`` runs the ``amanda`` command."""

from amanda_tools.command import main

if __name__ == "__main__":
    main()
