// Which fields fit together, and the shape of the map that every op makes: the shape rules of bcnn/program/ops, one function an op, and what
// an op costs. The engine trusts its records, so nothing reaches it that has not passed here. A rule returns [H, W, C]; `work` adds up
// multiply-accumulates and operations on single values.

const MAX_SIDE = 1 << 14,
  MAX_CHANNELS = 1 << 20,
  MAX_MAP = 1 << 28,
  MAX_BITS = (1 << 16) - 1,
  MAX_BRANCHES = 1024;

const words = (channels) => Math.ceil(channels / 32);

function whole(what, value, low, high) {
  if (!(value >= low && value <= high))
    throw new UserError(`${what} is ${value}, not a whole number from ${low} to ${high}`);
  return value;
}

function hasShape(what, array, shape) {
  if (array.shape.length !== shape.length || array.shape.some((side, i) => side !== shape[i]))
    throw new UserError(`${what} is ${array.shape.join(" x ")}, not ${shape.join(" x ")}`);
}

function finite(what, array, shape) {
  hasShape(what, array, shape);
  if (!array.values.every(Number.isFinite)) throw new UserError(`${what} has values that are not finite`);
}

function vector(what, array) {
  if (array.shape.length !== 1 || array.shape[0] > MAX_CHANNELS)
    throw new UserError(`${what} must be a vector of 1 to ${MAX_CHANNELS} channels`);
  return array.shape[0];
}

const sourceShape = (source, shapes, what = "source") => shapes[whole(what, source, 0, shapes.length - 1)];

function noTail(what, array, channels) {
  const count = array.shape.at(-1);
  if (channels % 32)
    for (let i = count - 1; i < array.values.length; i += count)
      if (array.values[i] >>> (channels % 32))
        throw new UserError(`${what} has bits set past its ${channels} channels`);
}

function groupsOf(groups, k, o) {
  whole("groups", groups, 1, MAX_CHANNELS);
  if (k % groups || o % groups)
    throw new UserError(`its ${groups} groups divide neither or only one of ${k} channels read and ${o} made`);
  return groups;
}

// --- windows and endings ------------------------------------------------------------------------------------------------

const taps = ({ fields: { kernel } }) => kernel[0] * kernel[1];

// Height and width of the map that a window makes.
function windowSize({ fields: { kernel, stride, padding, dilation } }, given) {
  for (const [what, values] of Object.entries({ kernel, stride, dilation }))
    for (const value of values) whole(what, value, 1, MAX_SIDE);
  for (const value of padding) whole("padding", value, -MAX_SIDE, MAX_SIDE);
  return [0, 1].map((side) => {
    const padded = given[side] + padding[side] + padding[2 + side],
      extent = (kernel[side] - 1) * dilation[side] + 1;
    if (padded < extent)
      throw new UserError(
        `a ${side ? "width" : "height"} of ${given[side]}, ${padded} with padding, is less than the ${extent} of its kernel`,
      );
    return Math.floor((padded - extent) / stride[side]) + 1;
  });
}

// A pool of no pixels has no value.
function everyWindowTouches({ fields: { kernel, stride, padding, dilation } }, given, made) {
  for (const side of [0, 1])
    for (const position of [0, made[side] - 1]) {
      const first = position * stride[side] - padding[side];
      let touches = false;
      for (let k = 0; k < kernel[side] && !touches; k++) {
        const tap = first + k * dilation[side];
        touches = tap >= 0 && tap < given[side];
      }
      if (!touches) throw new UserError("has windows that lie outside the map");
    }
}

const ENDINGS = {
  Add({ source, reads, first }, shape, shapes) {
    const [h, w, c] = sourceShape(source, shapes, "the map added");
    whole("first", first, 0, shape[2] - 1);
    whole("reads", reads, 1, shape[2] - first);
    if (h !== shape[0] || w !== shape[1] || c > reads)
      throw new UserError(`adds ${reads} channels of map ${source}, ${[h, w, c]}, to one of ${shape}`);
  },
  Gate({ source }, shape, shapes) {
    const gate = sourceShape(source, shapes, "the map it is gated by");
    if (gate.some((side, i) => side !== 1 && side !== shape[i]))
      throw new UserError(`is gated by map ${source}, ${gate}, which does not spread over ${shape}`);
  },
  Affine({ scale, offset }, shape) {
    if (!scale && !offset) throw new UserError("has neither scale nor offset");
    if (scale) finite("scale", scale, [shape[2]]);
    if (offset) finite("offset", offset, [shape[2]]);
  },
  PReLU({ slope }, shape) {
    finite("slope", slope, [shape[2]]);
  },
  ReLU() {},
  Sigmoid() {},
  Clip({ limits }) {
    finite("limits", limits, [2]);
    if (limits.values[0] > limits.values[1])
      throw new UserError(`clips to limits ${limits.values} that are not in order`);
  },
  Sign({ threshold }, shape) {
    finite("threshold", threshold, [shape[2]]);
  },
};

function withEndings(after, shape, shapes, work) {
  if (after.length > 64) throw new UserError("after must have at most 64 endings");
  for (const { kind, fields } of after) {
    if (!Object.hasOwn(ENDINGS, kind))
      throw new UserError(`this page cannot check the ending ${kind}; export it again with a newer bcnn`);
    try {
      ENDINGS[kind](fields, shape, shapes);
    } catch (error) {
      throw error instanceof UserError ? new UserError(`${kind}: ${error.message}`) : error;
    }
    work(product(shape));
  }
  return shape;
}

// --- ops ----------------------------------------------------------------------------------------------------------------

function pooled({ source, window }, shapes, work) {
  const [h, w, c] = sourceShape(source, shapes),
    made = windowSize(window, [h, w]);
  everyWindowTouches(window, [h, w], made);
  work(product(made) * c * taps(window));
  return [...made, c];
}

// Of a binary convolution; `check` looks at the numbers of one branch.
function binaryShape({ source, reads, branches, window, groups, after }, shapes, work, check) {
  if (branches.length < 1 || branches.length > MAX_BRANCHES)
    throw new UserError(`has ${branches.length} branches; between 1 and ${MAX_BRANCHES} are allowed`);
  const [h, w, c] = sourceShape(source, shapes),
    k = whole("reads", reads, c, MAX_CHANNELS);
  const o = vector("scale", branches[0].fields.scale),
    inner = k / groupsOf(groups, k, o),
    made = windowSize(window, [h, w]);
  const bits = taps(window) * inner;
  if (bits > MAX_BITS) throw new UserError(`sums ${bits} signs; a count holds at most ${MAX_BITS}`);
  branches.forEach(({ fields }, p) => {
    const { weight, pad, shift } = fields,
      what = `branch ${p}: `;
    check(fields, what, k, o, bits);
    hasShape(`${what}weight`, weight, [o, taps(window), words(inner)]);
    noTail(`${what}weight`, weight, inner);
    if (pad) {
      hasShape(`${what}pad`, pad, [words(k)]);
      noTail(`${what}pad`, pad, k);
    }
    [h, w].forEach((size, side) => whole(`${what}shift`, shift[side], -size, size));
    work(product(made) * o * bits + h * w * k);
  });
  return withEndings(after, [...made, o], shapes, work);
}

const RULES = {
  Input({ height, width, scale, offset, intensity }, shapes) {
    if (shapes.length) throw new UserError("only the first op may be an Input");
    finite("scale", scale, [3]);
    finite("offset", offset, [3]);
    if (intensity) finite("intensity", intensity, [3]);
    return [whole("height", height, 1, MAX_SIDE), whole("width", width, 1, MAX_SIDE), intensity ? 4 : 3];
  },
  BinaryConv(fields, shapes, work) {
    return binaryShape(fields, shapes, work, ({ threshold, scale, offset }, what, k, o) => {
      finite(`${what}threshold`, threshold, [k]);
      finite(`${what}scale`, scale, [o]);
      finite(`${what}offset`, offset, [o]);
    });
  },
  Conv({ source, reads, weight, offset, window, groups, after }, shapes, work) {
    const [h, w, c] = sourceShape(source, shapes),
      k = whole("reads", reads, c, MAX_CHANNELS),
      o = vector("offset", offset);
    const inner = k / groupsOf(groups, k, o),
      made = windowSize(window, [h, w]);
    finite("offset", offset, [o]);
    finite("weight", weight, [...window.fields.kernel, inner, o]);
    offset.values = offset.values.map((value) => value + 0); // -0.0 is 0.0
    work(product(made) * (weight.values.length + o));
    return withEndings(after, [...made, o], shapes, work);
  },
  Linear({ source, weight, bias, after }, shapes, work) {
    const [h, w, c] = sourceShape(source, shapes),
      o = vector("bias", bias);
    if (h !== 1 || w !== 1) throw new UserError(`reads a ${h} x ${w} map; a Linear op needs 1 x 1`);
    finite("bias", bias, [o]);
    finite("weight", weight, [c, o]);
    work(weight.values.length);
    return withEndings(after, [1, 1, o], shapes, work);
  },
  Pointwise({ source, reads, after }, shapes, work) {
    const [h, w, c] = sourceShape(source, shapes);
    if (!after.length) throw new UserError("does nothing: it has no endings");
    return withEndings(after, [h, w, whole("reads", reads, c, MAX_CHANNELS)], shapes, work);
  },
  Constant({ value }) {
    if (value.shape.length !== 3) throw new UserError("value must be a map H,W,C");
    finite("value", value, value.shape);
    return value.shape;
  },
  AvgPool: pooled,
  MaxPool: pooled,
  GlobalAvgPool({ source, up }, shapes, work) {
    if (up) throw new UserError("a mean of floats has no fractional bits");
    const shape = sourceShape(source, shapes);
    work(product(shape));
    return [1, 1, shape[2]];
  },
  ChannelAvg({ source, channels }, shapes, work) {
    const [h, w, c] = sourceShape(source, shapes);
    work(h * w * c);
    return [h, w, whole("channels", channels, 1, c)];
  },
  AbsMean({ source }, shapes, work) {
    const [h, w, c] = sourceShape(source, shapes);
    work(h * w * (c + 1));
    return [h, w, 1];
  },
  Concat({ sources }, shapes) {
    if (sources.length < 1 || sources.length > 1024) throw new UserError("must have 1 to 1024 sources");
    const read = sources.map((source) => sourceShape(source, shapes));
    if (read.some((shape) => shape[0] !== read[0][0] || shape[1] !== read[0][1]))
      throw new UserError(`joins maps of different sizes: ${read.join("; ")}`);
    return [read[0][0], read[0][1], read.reduce((sum, shape) => sum + shape[2], 0)];
  },
  Select({ source, index }, shapes) {
    const [h, w, c] = sourceShape(source, shapes),
      o = vector("index", index);
    if (!index.values.every((value) => value >= 0 && value < c))
      throw new UserError(`index names channels outside the ${c} of its source`);
    return [h, w, o];
  },
  Upsample({ source, factor }, shapes) {
    const [h, w, c] = sourceShape(source, shapes);
    for (const value of factor) whole("factor", value, 1, MAX_SIDE);
    return [h * factor[0], w * factor[1], c];
  },
};

// The shapes of all maps, once every op fits and the whole is affordable.
function checkProgram(ops, names) {
  if (!ops.length || !["Input", "FixedInput"].includes(ops[0].kind))
    throw new UserError("a program must begin with an Input op");
  const shapes = [],
    own = NUMBERS[ops[0].kind];
  let total = 0,
    bytes = 0;
  const work = (more) => {
    total += more;
    if (total > LIMITS.work)
      throw new UserError(
        `one image takes more than ${LIMITS.work.toLocaleString("en")} operations, the limit of this page`,
      );
  };
  ops.forEach(({ kind, fields }, i) => {
    try {
      if (!Object.hasOwn(RULES, kind))
        throw new UserError("this page cannot check it; export it again with a newer bcnn");
      for (const part of [{ kind }, ...(fields.after ?? [])])
        if (![own, "any"].includes(NUMBERS[part.kind]))
          throw new UserError(`${part.kind} works on ${NUMBERS[part.kind]}, the program on ${own}`);
      const [h, w, c] = RULES[kind](fields, shapes, work);
      if ((fields.fraction ?? null) !== null) whole("fraction", fields.fraction, -64, 64);
      if (!(h > 0 && h <= MAX_SIDE && w > 0 && w <= MAX_SIDE && c > 0 && c <= MAX_CHANNELS && h * w * c <= MAX_MAP))
        throw new UserError(`its map of ${h} x ${w} x ${c} is empty or too large`);
      shapes.push([h, w, c]);
      work(h * w * c);
      bytes += (own === "int16" ? 2 : 4) * h * w * c;
    } catch (error) {
      throw error instanceof UserError
        ? new UserError(`op ${i} (${kind} '${names[i].slice(0, 80)}'): ${error.message}`)
        : error;
    }
  });
  if (bytes > LIMITS.map_bytes)
    throw new UserError(
      `one image takes ${bytes.toLocaleString("en")} bytes of maps; the limit is ${LIMITS.map_bytes.toLocaleString("en")}`,
    );
  return shapes;
}
