"""One file per verb; each has a `main(args)`."""
