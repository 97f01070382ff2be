// A packed file (docs/file_format.md) -> its program, or a sentence. Trusts nothing, and knows no op by name: `KINDS` lists the fields of
// every class of bcnn/program/ops, STREAMS where arrays of a type lie; web.py writes both from the classes themselves.

const MAX_HEADER = 1 << 18,
  MAX_FILE = 1 << 27,
  MAX_TEXT = 1 << 22,
  MAX_DIMENSIONS = 4;
const ARRAYS = { F32: Float32Array, I32: Int32Array, I16: Int16Array, I8: Int8Array, U8: Uint8Array };

// --- container --------------------------------------------------------------------------------------------------------

const isCount = (value) => Number.isInteger(value) && value >= 0 && value <= MAX_FILE;
const product = (shape) => shape.reduce((a, b) => a * b, 1);

function decoded(bytes, what) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new UserError(`${what} is not text: damaged or not a packed file`);
  }
}

// The format's version, and by name the dtype, shape and bytes of every tensor.
function readContainer(file) {
  if (file.length <= 8 || file.length > MAX_FILE)
    throw new UserError(`it has ${file.length} bytes; a packed file has more than 8 and at most ${MAX_FILE}`);
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  if (length > Math.min(MAX_HEADER, file.length - 8))
    throw new UserError(
      `its header claims ${length} bytes, more than the file or the format allows: damaged or not a packed file`,
    );
  const header = strictJson(decoded(file.subarray(8, 8 + length), "its header"), "its header");
  const metadata = isTable(header) ? header.get("__metadata__") : undefined;
  if (!isTable(metadata) || [...metadata.values()].some((value) => typeof value !== "string"))
    throw new UserError("its header has no table of metadata");
  header.delete("__metadata__");
  const data = file.subarray(8 + length),
    tensors = new Map();
  let end = 0; // of the tensors so far: offsets must cover the data in order, without gaps
  for (const [name, entry] of header) {
    const where = `tensor ${shown(name)}`;
    if (!isTable(entry) || entry.size !== 3 || !["dtype", "shape", "data_offsets"].every((key) => entry.has(key)))
      throw new UserError(`${where}: its entry must have dtype, shape and data_offsets`);
    const dtype = entry.get("dtype"),
      shape = entry.get("shape"),
      offsets = entry.get("data_offsets");
    if (typeof dtype !== "string" || !Object.values(DTYPES).includes(dtype))
      throw new UserError(`${where}: its dtype is ${shown(dtype)}`);
    if (!Array.isArray(shape) || shape.length > MAX_DIMENSIONS || !shape.every(isCount))
      throw new UserError(`${where}: its shape is ${shown(shape)}`);
    const size = product(shape) * ARRAYS[dtype].BYTES_PER_ELEMENT;
    if (!Array.isArray(offsets) || offsets.length !== 2 || offsets[0] !== end || offsets[1] !== end + size)
      throw new UserError(`${where}: its data_offsets are ${shown(offsets)}, not [${end}, ${end + size}]`);
    if (end + size > data.length) throw new UserError(`${where}: the file ends before it does: truncated or damaged`);
    tensors.set(name, { dtype, shape, bytes: data.subarray(end, end + size) });
    end += size;
  }
  if (end !== data.length)
    throw new UserError(`it has ${data.length} bytes of data but its header describes ${end}: truncated or damaged`);
  return { metadata, tensors };
}

// Numbers of their own, whatever place their bytes have in the file.
const numbers = (tensor) => new ARRAYS[tensor.dtype](tensor.bytes.slice().buffer);

// Bytes as they were before zlib, at most `most` of them.
async function inflated(bytes, what, most = MAX_TEXT) {
  const parts = [];
  let total = 0;
  try {
    for await (const part of readable(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")))) {
      parts.push(part);
      total += part.length;
      if (total > most) break;
    }
  } catch {
    throw new UserError(`${what} cannot be decompressed: damaged or not a packed file`);
  }
  if (total > most) throw new UserError(`${what} has more than the ${most} bytes of the format`);
  const made = new Uint8Array(total);
  parts.reduce((at, part) => (made.set(part, at), at + part.length), 0);
  return made;
}

async function* readable(stream) {
  const reader = stream.getReader(); // not every browser can iterate over a stream
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  } finally {
    await reader.cancel();
  }
}

function checkTensors(tensors) {
  const known = new Map([
    ...Object.entries(DTYPES),
    ["test", "F32"],
    ["hashes", "U8"],
    ["program", "U8"],
    ["provenance", "U8"],
  ]);
  for (const name of ["hashes", "program", "provenance"])
    if (!tensors.has(name)) throw new UserError(`tensor '${name}' is missing`);
  for (const [name, { dtype, shape, bytes }] of tensors) {
    if (!known.has(name)) throw new UserError(`it has a tensor ${shown(name)}, which no packed file has`);
    const sides = name === "test" || name === "hashes" ? 2 : 1;
    if (dtype !== known.get(name) || shape.length !== sides || !bytes.length)
      throw new UserError(`tensor '${name}' is ${dtype} ${shown(shape)}, not ${known.get(name)} of ${sides} sides`);
  }
  const [rows, width] = tensors.get("hashes").shape;
  if (width !== 8 || rows < 3) throw new UserError(`its hashes are ${rows} x ${width}, not rows of 8 bytes`);
}

// --- fields -----------------------------------------------------------------------------------------------------------

// Takes the arrays of ops out of the streams. A part is { kind, fields }; an array is { values, shape }, bits as words.
class FieldReader {
  constructor(tensors) {
    this.streams = {};
    for (const [name, dtype] of Object.entries(DTYPES))
      this.streams[name] = { all: tensors.has(name) ? numbers(tensors.get(name)) : new ARRAYS[dtype](0), taken: 0 };
    this.words = 0; // bytes of bits as words: a row of one bit takes 32 times as much
    this.parts = 0;
  }

  op(plain, where, hashed) {
    this.own = [];
    this.tail = "";
    const made = this.part("Op", plain, where);
    if (!sameBytes(digest(...this.own), hashed))
      throw new UserError(`${where} does not match its hash: the file is damaged; copy or pack it again`);
    if (this.tail) throw new UserError(`${this.tail} has bits set past its end`);
    return made;
  }

  finish() {
    for (const [name, { all, taken }] of Object.entries(this.streams))
      if (taken !== all.length)
        throw new UserError(`no op uses the last ${all.length - taken} of the numbers in '${name}'`);
  }

  part(type, plain, where) {
    if (!Array.isArray(plain)) throw new UserError(`${where} is ${shown(plain)}, not a list of fields`);
    if (++this.parts > LIMITS.parts + LIMITS.ops)
      throw new UserError(`it has more than ${LIMITS.parts} branches and endings`);
    let fields = KINDS[type],
      kind = type;
    if (!Array.isArray(fields)) {
      [kind = null, ...plain] = plain;
      if (typeof kind !== "string" || !Object.hasOwn(fields, kind))
        throw new UserError(
          `${where} is ${shown(kind)}, which this page does not know; export it again with a newer bcnn`,
        );
      fields = fields[kind];
    }
    if (plain.length > fields.length)
      throw new UserError(`${where}: ${kind} has ${fields.length} fields, not ${plain.length}`);
    const made = {};
    fields.forEach(([name, type, ...rest], i) => {
      if (i >= plain.length && !rest.length) throw new UserError(`${where}: ${kind} lacks ${name}`);
      made[name] = this.value(type, i < plain.length ? plain[i] : rest[0], `${where}: ${name}`);
    });
    return { kind, fields: made };
  }

  value(type, value, where) {
    if (type.endsWith(" | None")) {
      if (value === null) return null;
      type = type.slice(0, -" | None".length);
    }
    if (Object.hasOwn(STREAMS, type)) return this.array(STREAMS[type], value, where);
    if (type === "int" || type === "Map") return this.whole(value, where);
    if (type === "bool") {
      if (typeof value !== "boolean") throw new UserError(`${where} is ${shown(value)}, not true or false`);
      return value;
    }
    const many = /^tuple\[(.*)\]$/.exec(type);
    if (!many) return this.part(type, value, where);
    const types = many[1].split(", "),
      any = types.at(-1) === "...";
    if (!Array.isArray(value) || (!any && value.length !== types.length))
      throw new UserError(`${where} is ${shown(value)}, not ${type}`);
    return value.map((item, i) =>
      this.value(any ? types[0] : types[i], item, Object.hasOwn(KINDS, types[0]) ? `${where}.${i}` : where),
    );
  }

  whole(value, where) {
    if (!Number.isSafeInteger(value)) throw new UserError(`${where} is ${shown(value)}, not a whole number of 64 bits`);
    return value;
  }

  array(stream, plain, where) {
    if (stream === "i16" && Array.isArray(plain) && plain[0] === "i8") return this.multiples(plain, where);
    const shape = Number.isInteger(plain) ? [plain] : plain;
    if (!Array.isArray(shape) || shape.length < 1 || shape.length > MAX_DIMENSIONS)
      throw new UserError(`${where} is ${shown(plain)}, not the shape of an array`);
    if (!shape.every((side) => Number.isInteger(side) && side >= 1 && side <= 8 * MAX_FILE))
      throw new UserError(`${where} is ${shown(plain)}, not the shape of an array that a file holds`);
    const size = product(shape),
      bits = stream === "bits";
    const content = this.take(stream, bits ? Math.ceil(size / 8) : size, where);
    if (!bits) return { values: content, shape };
    const n = shape.at(-1),
      rows = size / n,
      words = Math.ceil(n / 32);
    this.words += rows * words * 4;
    if (this.words > MAX_FILE) throw new UserError(`${where}: its bits take more than ${MAX_FILE} bytes as words`);
    if (size % 8 && content.at(-1) >> (size % 8)) this.tail ||= where;
    return { values: asWords(content, rows, n), shape: [...shape.slice(0, -1), words] };
  }

  // Shorts that are stored in a byte each: ["i8", step, shape]; a step of 0 stands for one of each channel, and those come first.
  multiples(plain, where) {
    const [, step, shape] = plain;
    if (plain.length !== 3 || !Number.isInteger(step) || step < 0 || step >= 1 << 15)
      throw new UserError(`${where} is ${shown(plain)}, not ["i8", step, shape]`);
    const last = Array.isArray(shape) && shape.length ? shape.at(-1) : shape;
    const steps = step ? [step] : this.array("i16", last, `${where}, its steps`).values;
    const read = this.array("i8", shape, where);
    const values = Int32Array.from(read.values, (value, i) => value * steps[i % steps.length]);
    if (values.some((value) => Math.abs(value) >= 1 << 15))
      throw new UserError(`${where} has values that do not fit 16 bits`);
    return { values: Int16Array.from(values), shape: read.shape };
  }

  take(stream, count, where) {
    const from = this.streams[stream],
      content = from.all.subarray(from.taken, from.taken + count);
    if (content.length !== count)
      throw new UserError(`${where} has ${count} numbers in '${stream}', which has ${content.length} left`);
    from.taken += count;
    this.own.push(new Uint8Array(content.buffer, content.byteOffset, content.byteLength));
    return content;
  }
}

// Rows of n bits without gaps -> rows of whole words, filled up with zeros.
function asWords(stream, rows, n) {
  const words = Math.ceil(n / 32),
    made = new Uint32Array(rows * words);
  if (n % 32 === 0) {
    new Uint8Array(made.buffer).set(stream);
    return made;
  }
  for (let row = 0, bit = 0; row < rows; row++)
    for (let k = 0; k < n; k++, bit++)
      made[row * words + (k >>> 5)] |= ((stream[bit >>> 3] >>> (bit & 7)) & 1) << (k & 31);
  return made;
}

// --- the whole --------------------------------------------------------------------------------------------------------

const UNPRINTABLE = /[\p{C}\p{Z}]/u; // but for the space
const printable = (text) => typeof text === "string" && !UNPRINTABLE.test(text.replaceAll(" ", ""));

// { ops, names, labels, crop, rejects, provenance, shapes, seeds, expected }
async function openPacked(file) {
  const { metadata, tensors } = readContainer(file);
  if (!metadata.has("format"))
    throw new UserError("it is a safetensors file but not a packed program; make one with `bcnn pack`");
  if (metadata.get("format") !== FORMAT || metadata.size !== 1)
    throw new UserError(
      `it has format ${shown(metadata.get("format"))}, this page reads ${FORMAT}; pack the checkpoint again with \`bcnn pack\``,
    );
  checkTensors(tensors);
  const hashes = tensors.get("hashes").bytes,
    rows = hashes.length / 8;
  const hashed = (row) => hashes.subarray(8 * row, 8 * row + 8);
  const bytesOf = (name) => (tensors.has(name) ? tensors.get(name).bytes : new Uint8Array(0));
  ["provenance", "program", "test"].forEach((name, i) => {
    if (!sameBytes(digest(bytesOf(name)), hashed(rows - 1 - i)))
      throw new UserError(`tensor '${name}' does not match its hash: the file is damaged; copy or pack it again`);
  });
  const parsed = async (name, real) => {
    const what = `its ${name}`;
    return strictJson(decoded(await inflated(bytesOf(name), what), what), what, real);
  };
  const text = programText(await parsed("program"));
  const provenance = await parsed("provenance", (value) => value);
  if (!isTable(provenance)) throw new UserError("its provenance is not a table");
  const count = text.ops.length;
  if (rows !== count + 3) throw new UserError(`it has ${rows} hashes for ${count} ops; three more than ops are needed`);
  if (text.names.length !== count) throw new UserError(`it has ${text.names.length} names for ${count} ops`);
  if (count > LIMITS.ops) throw new UserError(`one image takes ${count} ops; the limit is ${LIMITS.ops}`);
  const reader = new FieldReader(tensors);
  const ops = text.ops.map((op, i) => reader.op(op, `op ${i} (${text.names[i].slice(0, 80)})`, hashed(i)));
  const shapes = checkProgram(ops, text.names);
  reader.finish();
  const last = shapes.at(-1);
  if (text.labels.length && text.labels.length !== last[2])
    throw new UserError(`program has ${text.labels.length} labels but its last map is ${shown(last)}`);
  if (text.rejects && (text.labels.length < 2 || last[0] !== 1 || last[1] !== 1))
    throw new UserError(
      `rejects is true with ${text.labels.length} labels; it needs two or more, the last for none of them`,
    );
  const expected = tensors.has("test") ? numbers(tensors.get("test")) : new Float32Array(0),
    seeds = text.seeds;
  const [stored, classes] = tensors.has("test") ? tensors.get("test").shape : [0, product(last)];
  if (stored !== seeds.length || classes !== product(last))
    throw new UserError(
      `its test logits are ${stored} x ${classes}, not one row of ${product(last)} for each of ${seeds.length} seeds`,
    );
  return {
    ops,
    names: text.names,
    labels: text.labels,
    crop: text.crop,
    rejects: text.rejects,
    provenance,
    shapes,
    seeds,
    expected,
    bytes: file.length,
  };
}

function programText(table) {
  const keys = ["ops", "names", "labels", "crop", "test_seeds"];
  if (!isTable(table)) throw new UserError("its program is not a table");
  for (const key of table.keys())
    if (!keys.includes(key) && key !== "rejects") throw new UserError(`its program: unknown key ${shown(key)}`);
  for (const key of keys) if (!table.has(key)) throw new UserError(`its program lacks '${key}'`);
  const [ops, names, labels, given, seeds] = keys.map((key) => table.get(key));
  for (const [key, list] of Object.entries({ ops, names, labels, test_seeds: seeds }))
    if (!Array.isArray(list)) throw new UserError(`${key} must be a list, got ${shown(list)}`);
  if (![...names, ...labels].every(printable)) throw new UserError("names and labels must be lists of printable texts");
  if (!seeds.every((seed) => Number.isInteger(seed) && seed >= 0 && seed < 2 ** 31))
    throw new UserError("its test_seeds are not whole numbers from 0 up to 2^31");
  const crop = given instanceof Real ? given.value : given;
  if (typeof crop !== "number" || !(crop >= LIMITS.crop && crop <= 1))
    throw new UserError(`crop is ${shown(given)}, not a number from ${LIMITS.crop} to 1`);
  const rejects = table.has("rejects") ? table.get("rejects") : false;
  if (typeof rejects !== "boolean") throw new UserError(`rejects is ${shown(rejects)}, not true or false`);
  return { ops, names, labels, crop, seeds, rejects };
}
