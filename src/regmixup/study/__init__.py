"""Many runs from one TOML file: methods x seeds, trained, predicted, evaluated and collected. Resumable."""
