"""`python -m kedge` is the command line."""

from kedge.cli.main import entry_point

if __name__ == "__main__":
    entry_point()
