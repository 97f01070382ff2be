// A checked program -> the native engine in WebAssembly, native/web/bind.cpp: records are written into its memory, then images go in and
// logits come out. One instance a program.

// A program as flat 32-bit numbers: kind, numbers, arrays and parts of every op, as bcnn/program/record.py has them.
class RecordWriter {
  constructor(ops, shapes) {
    this.chunks = []; // of bytes, four at a time
    this.put(ops.length);
    ops.forEach((op, i) => {
      this.put(...shapes[i]);
      this.record(op);
    });
  }

  put(...values) {
    this.chunks.push(Int32Array.from(values));
  }

  // Filled up to whole numbers.
  bytes(values) {
    const padded = new Uint8Array(Math.ceil(values.byteLength / 4) * 4);
    padded.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    this.chunks.push(padded);
  }

  text(text) {
    const bytes = new TextEncoder().encode(text);
    this.put(bytes.length);
    this.bytes(bytes);
  }

  record({ kind, fields }) {
    const numbers = [],
      arrays = [],
      parts = [];
    const isPart = (value) => value !== null && typeof value === "object" && "kind" in value;
    const types = new Map(
      (Array.isArray(KINDS[kind]) ? KINDS[kind] : (KINDS.Op[kind] ?? KINDS.Ending[kind])).map(([name, type]) => [
        name,
        type,
      ]),
    );
    for (const [name, value] of Object.entries(fields)) {
      if (value === null) continue;
      if (isPart(value)) parts.push([name, [value]]);
      else if (Array.isArray(value))
        (/^tuple\[(int|Map)\b/.test(types.get(name)) ? numbers : parts).push([name, value]);
      else if (typeof value === "object") arrays.push([name, value.values]);
      else numbers.push([name, [Number(value)]]);
    }
    this.text(kind);
    this.put(numbers.length);
    for (const [name, values] of numbers) {
      this.text(name);
      this.put(values.length, ...values);
    }
    this.put(arrays.length);
    for (const [name, values] of arrays) {
      this.text(name);
      this.put(values.length, values.BYTES_PER_ELEMENT);
      this.bytes(values);
    }
    this.put(parts.length);
    for (const [name, list] of parts) {
      this.text(name);
      this.put(list.length);
      for (const part of list) this.record(part);
    }
  }

  all() {
    const made = new Uint8Array(this.chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0));
    let at = 0;
    for (const chunk of this.chunks) {
      made.set(new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength), at);
      at += chunk.byteLength;
    }
    return made;
  }
}

class Engine {
  // `module` is the compiled engine, `program` what openPacked returned.
  static async make(module, program) {
    const engine = new Engine(),
      imports = { bcnn: { fail: (at, length) => engine.fail(at, length) } };
    for (const { module: from, name } of WebAssembly.Module.imports(module)) (imports[from] ??= {})[name] ??= () => 0; // a clock that nobody reads here
    engine.exports = (await WebAssembly.instantiate(module, imports)).exports;
    engine.program = program;
    engine.call("_initialize");
    const records = new RecordWriter(program.ops, program.shapes).all(),
      at = engine.call("take", records.length);
    if (!at) throw new UserError("there is not enough memory for this network");
    new Uint8Array(engine.exports.memory.buffer, at, records.length).set(records);
    engine.call("open", at, records.length);
    return engine;
  }

  call(name, ...values) {
    try {
      return this.exports[name](...values);
    } catch (error) {
      if (error instanceof UserError) throw error;
      throw new UserError(
        `the engine stopped (${error.message}): there is not enough memory for this network, or its file is damaged`,
      );
    }
  }

  fail(at, length) {
    const sentence = new TextDecoder().decode(new Uint8Array(this.exports.memory.buffer, at, length));
    throw new UserError(sentence === "std::bad_alloc" ? "there is not enough memory for this network" : sentence);
  }

  numbers(Type, at, count) {
    return new Type(this.exports.memory.buffer, at, count).slice();
  }

  // RGB bytes H,W,3 of the network's size -> logits.
  run(pixels) {
    new Uint8Array(this.exports.memory.buffer, this.call("image"), pixels.length).set(pixels);
    return this.runImage();
  }

  runImage() {
    this.call("run");
    const values = this.values(this.call("logits"), product(this.program.shapes.at(-1)));
    if (values instanceof Float32Array) return values;
    const step = 2 ** -fractionsOf(this.program.ops).at(-1); // exact: 16 bits times a power of two
    return Float32Array.from(values, (value) => value * step);
  }

  // Of a map: float32, or int16 of a program in integers.
  values(at, count) {
    return this.numbers(this.call("value_bytes") === 2 ? Int16Array : Float32Array, at, count);
  }

  // Every map of one image, for tests.
  maps(pixels) {
    new Uint8Array(this.exports.memory.buffer, this.call("image"), pixels.length).set(pixels);
    this.call("maps");
    return this.program.shapes.map((shape, i) => this.values(this.call("map", i), product(shape)));
  }

  // How many of the file's test vectors give the logits that were stored when it was packed, bit for bit.
  verify() {
    const { seeds, expected } = this.program,
      classes = expected.length / seeds.length;
    return seeds.filter((seed, i) => {
      this.call("vector", seed);
      return this.runImage().every((value, c) => Object.is(value, expected[i * classes + c]));
    }).length;
  }
}

// Class numbers by falling probability, the first of equals first, as Engine.predict of bcnn.engine has them.
function likeliest(logits, top) {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity),
    shares = Array.from(logits, (value) => Math.exp(value - most));
  const sum = shares.reduce((a, b) => a + b, 0);
  return shares
    .map((share, index) => ({ index, probability: share / sum }))
    .sort((a, b) => b.probability - a.probability || a.index - b.index)
    .slice(0, top);
}
