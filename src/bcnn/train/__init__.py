"""Training (sec. 5): `config` says what a run is, `loop` runs it, `run` is the folder it leaves behind."""
