"""`python -m dragoman_server`: the same as `dragoman`."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="dragoman")
