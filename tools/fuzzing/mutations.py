"""Small wrong changes, each with the tests that must notice it: the data of `python -m tools.fuzzing.mutate`.

(file, text that stands in it once, what a slip could make of it, tests as pytest takes them, a part of their names)
"""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    file: str
    old: str
    new: str
    tests: str
    only: str = ""  # as pytest's -k


FILES, CHECKPOINT, START, LOOP = (
    "src/bcnn/base/files.py",
    "src/bcnn/training/checkpoint.py",
    "src/bcnn/training/opening.py",
    "src/bcnn/training/loop.py",
)
RESUME = "tests/training/test_train_resume.py"

MUTATIONS = (
    # --- files: complete or not there
    Mutation(FILES, "os.fsync(file.fileno())", "pass", "tests/base/test_files.py", "reach_the_disk"),
    Mutation(FILES, "        os.fsync(folder)\n", "        pass\n", "tests/base/test_files.py", "reach_the_disk"),
    Mutation(FILES, " | os.O_EXCL", "", "tests/base/test_files.py", "link_in_the_way"),
    Mutation(FILES, "os.fchmod(handle, kept)", "pass", "tests/base/test_files.py", "permissions"),
    Mutation(FILES, "0o666 if kept is None else 0o600", "0o666", "tests/base/test_files.py", "never_open"),
    Mutation(FILES, "secrets.token_hex(8)", "'0' * 16", "tests/base/test_files.py", "two_writers"),
    Mutation(
        FILES,
        "                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)\n                    os.unlink",
        "                    os.unlink",
        "tests/base/test_files.py",
        "swept",
    ),
    Mutation(FILES, "            os.unlink(link)  #", "            pass  #", "tests/base/test_files.py", "any_call"),
    Mutation(FILES, "        check_plain(path)\n    for name", "        pass\n    for name", "tests/base/test_hostile_system.py", "never_replaced"),
    Mutation("src/bcnn/cli/app.py", "sys.stdout.flush()  #", "pass  #", "tests/base/test_hostile_system.py", "full_disk"),
    # --- checkpoints
    Mutation(CHECKPOINT, "if hashes[name] != tensor_hash(tensor)", "if False", "tests/training/test_checkpoint.py", "wrong_bit"),
    Mutation(CHECKPOINT, '"meta", "progress", "hashes")', '"meta", "hashes")', "tests/training/test_checkpoint.py", "in_the_header"),
    Mutation(CHECKPOINT, "    fits(checkpoint, str(path))\n", "", "tests/training/test_checkpoint.py", "much_memory"),
    Mutation(CHECKPOINT, "branches > len(state) or weights > values", "False", "tests/training/test_checkpoint.py", "much_memory"),
    Mutation(CHECKPOINT, "previous(path) if keep else None", "None", "tests/training/test_checkpoint.py", "generation"),
    Mutation(START, "        checkpoint.restore(folder.last)\n", "        pass\n", RESUME, "damaged_checkpoint"),
    Mutation("src/bcnn/training/saver.py", "contents, must, keep=True)", "contents, must)", RESUME, "damaged_checkpoint"),
    Mutation("src/bcnn/training/run_progress.py", "or self.batch > batches", "", RESUME, "damaged_progress"),
    # --- runs
    Mutation(
        LOOP, "                progress.epochs_done,\n", "                0,\n",
        "tests/training/test_train_loop.py", "every_epoch",
    ),
    Mutation("src/bcnn/training/augment.py", "generator(seed, 1, epoch)", "generator(seed, 1, 0)", "tests/training/test_train_loop.py", "every_epoch"),
    Mutation("src/bcnn/training/batches.py", "generator(seed, 2, epoch)", "generator(seed, 2, 0)", "tests/training/test_train_loop.py", "every_epoch"),
    Mutation(LOOP, "adam.load_state(optimizer, network, optimizer_state)", "pass", RESUME, "damaged_checkpoint"),
    Mutation(LOOP, "                progress.batch,\n", "                0,\n", RESUME, "damaged_checkpoint"),
    Mutation(START, '"std", "train_images", "val_images")', '"std")', RESUME, "swapped"),
    Mutation(START, "    check_labels(source.classes)\n", "", RESUME, "could_not_be_packed"),
    Mutation("src/bcnn/training/lock.py", "fcntl.LOCK_EX", "fcntl.LOCK_SH", "tests/training/test_train_lock.py"),
    Mutation("src/bcnn/training/lock.py", "after_in_child=_let_go", "before=lambda: None", "tests/training/test_train_lock.py", "killed"),
    Mutation("src/bcnn/training/lock.py", "with suppress(OSError):  #", "with suppress(KeyError):  #", "tests/training/test_train_lock.py", "note"),
    Mutation("src/bcnn/training/transfer.py", "if state[name].dtype != tensor.dtype", "if False", "tests/training/test_train_losses.py", "transfer"),
    Mutation("src/bcnn/training/run_folder.py", ', errors="replace"', "", "tests/training/test_train_report.py", "no_records"),
    # --- trust
    Mutation("src/bcnn/training/teachers.py", '    if name.endswith(".pt2"):\n        raise', '    if False:\n        raise', "tests/training/test_train_teachers.py", "trust"),
    Mutation("src/bcnn/data/cifar.py", "if (module, name) not in self.ALLOWED", "if False", "tests/data/test_data_cifar.py"),
    Mutation("src/bcnn/base/console.py", '("Cc", "Cf",', '("Cf",', "tests/base/test_console.py"),
    Mutation("src/bcnn/base/console.py", "segment if segment.control else Segment(visible(segment.text), segment.style)", "segment", "tests/base/test_console.py"),
    Mutation("src/bcnn/cli/app.py", "visible(text).replace", "text.replace", "tests/base/test_console.py", "file_name"),
    Mutation("src/bcnn/learning/learn.py", "    check_labels(labels)\n", "", "tests/learning/test_learn.py", "could_not_be_packed"),
    Mutation("src/bcnn/training/report.py", "return html.escape(plain)", "return plain", "tests/training/test_train_report.py", "markup"),
    # --- programs
    Mutation("src/bcnn/packed/fields.py", "if np.abs(values).max() >= 1 << 15", "if False", "tests/packed/test_packfile_forged.py", "one_byte"),
    Mutation("src/bcnn/engine.py", "self.peak_memory, program.limits", "0, program.limits", "tests/base/test_limits.py", "gigabytes"),
    Mutation("src/bcnn/learning/class_centroids.py", " or raw.size != len(counts) * CENTRES * features", "", "tests/learning/test_learn.py", "read_back"),
    Mutation("src/bcnn/integers/calibration.py", "if seen > 0 or not sigmoids:", "if not sigmoids:", "tests/integers/test_quantize.py", "follows_a_sigmoid"),
    Mutation("src/bcnn/integers/calibration.py", "_fits(ranges[index]) - bits[family[index]]", "5", "tests/integers/test_quantize.py", "no_room_for"),
    Mutation("src/bcnn/program/ops/curves.py", "gentle(self.slope, room)", "[self.slope]", "tests/integers/test_quantize.py", "steep_slope"),
    Mutation("src/bcnn/integers/quantize.py", "cut |= read < ending.least", "pass", "tests/integers/test_quantize.py", "steep_slope"),
    Mutation("src/bcnn/program/ops/conversion.py", "size[size > 0]) < COARSE * step", "size[size > 0]) < 0", "tests/integers/test_quantize.py", "coarsen"),
    Mutation("src/bcnn/verification/verify_torch.py", "not all(map(np.array_equal, *weights))", "False", "tests/verification/test_verify.py", "of_integers"),
    # --- images
    Mutation("src/bcnn/base/images.py", "if pixels <= MAX_PIXELS_AT_FULL_SCALE * scale**2", "if pixels < MAX_PIXELS_AT_FULL_SCALE * scale", "tests/base/test_images.py", "large_jpeg"),
    Mutation("src/bcnn/base/images.py", "if pixels > MAX_PIXELS_AT_FULL_SCALE:", "if pixels >= MAX_PIXELS_AT_FULL_SCALE:", "tests/base/test_images.py", "ordinary"),
    Mutation("src/bcnn/base/images.py", "> max(MAX_RESIZED_PIXELS, 4 * width * height)", "> (1 << 60)", "tests/base/test_images.py", "early_cut or cost_little"),
    Mutation("src/bcnn/base/images.py", "get(ORIENTATION, 1) != 1", "get(ORIENTATION, 1) == 3", "tests/base/test_images.py", "exif"),
    Mutation("src/bcnn/cli/predict.py", "if not all(math.isfinite(value) for _, value in likeliest)", "if False", "tests/cli/test_cli_deploy.py", "overflow"),
    # --- threads
    Mutation("native/pool.cpp", "        std::lock_guard<std::mutex> lock(mutex_);\n    }\n    changed_", "    }\n    changed_", "tests/engine/test_pool.py", "wake_up"),
    Mutation("native/pool.cpp", "            end();  // a thread that", "            // a thread that", "tests/engine/test_pool.py", "wake_up"),
    Mutation("src/bcnn/engine.py", '("", "std::bad_alloc")', '("",)', "tests/engine/test_native_failures.py"),
)  # fmt: skip
