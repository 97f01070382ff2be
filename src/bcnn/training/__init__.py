"""Training (sec. 5): `config` says what a run is, `run` how it is asked for, `loop` runs it, `run_folder` is what it leaves."""
