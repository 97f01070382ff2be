// The rules of integer programs, as in shapes.js: those of bcnn/program/ops. Parameters are never -32768, and sums of 32 bits
// are bounded here, so that the engine need not look.

const HIGH = 32767,
  WIDEST = 2 ** 31 - 1,
  MOST_UP = 15,
  MOST_DOWN = 30;

function shorts(what, array, shape) {
  hasShape(what, array, shape);
  if (array.values.includes(-32768))
    throw new UserError(`${what} has a value of -32768; parameters are at least -32767`);
}

const upBits = (value, low = 0) => whole("up", value, low, MOST_UP);
const downBits = (value) => whole("down", value, 0, MOST_DOWN);
const half = (down) => Math.floor(2 ** down / 2);

// Whether |offset| plus values of up to `most` times numbers of this magnitude stay below 2^31. Whole numbers below 2^53 are exact.
function fits(what, magnitude, offset, most) {
  const bound = magnitude * most + offset;
  if (bound > WIDEST) throw new UserError(`${what} may reach ${bound}, more than a sum of 32 bits holds`);
}

const magnitudes = (values) => values.reduce((sum, value) => sum + Math.abs(value), 0);

Object.assign(ENDINGS, {
  FixedAdd({ source, reads, first, up }, shape, shapes) {
    ENDINGS.Add({ source, reads, first }, shape, shapes);
    upBits(up, -MOST_UP);
  },
  FixedGate({ source, down }, shape, shapes) {
    ENDINGS.Gate({ source }, shape, shapes);
    downBits(down);
  },
  FixedAffine({ scale, offset, down }, shape) {
    if (!scale && !offset) throw new UserError("has neither scale nor offset");
    if (scale) shorts("scale", scale, [shape[2]]);
    if (offset) shorts("offset", offset, [shape[2]]);
    downBits(down);
  },
  FixedPReLU({ bend, up }, shape) {
    shorts("bend", bend, [shape[2]]);
    whole("up", up, 0, 8);
  },
  FixedClip({ limits }) {
    shorts("limits", limits, [2]);
    if (limits.values[0] > limits.values[1])
      throw new UserError(`clips to limits ${limits.values} that are not in order`);
  },
  Bound({ limit }, shape) {
    shorts("limit", limit, [shape[2]]);
    if (limit.values.some((value) => value < 0)) throw new UserError("has a limit below 0");
  },
  Shift({ up }) {
    upBits(up, -MOST_UP);
  },
  FixedSign({ above, one }, shape) {
    shorts("above", above, [shape[2]]);
    whole("one", one, 1, HIGH);
  },
  Table({ values, down }) {
    shorts("values", values, [257]);
    whole("down", down, 0, 8);
  },
});

Object.assign(RULES, {
  FixedInput({ height, width, scale, offset, down, intensity }, shapes) {
    if (shapes.length) throw new UserError("only the first op may be an Input");
    hasShape("scale", scale, [3]);
    hasShape("offset", offset, [3]);
    const more = half(downBits(down));
    scale.values.forEach((value, c) => fits("a value", Math.abs(value), Math.abs(offset.values[c]) + more, 255));
    if (intensity) {
      shorts("intensity", intensity, [3]);
      fits("the intensity", magnitudes(intensity.values), 1 << 14, 1 << 15);
    }
    return [whole("height", height, 1, MAX_SIDE), whole("width", width, 1, MAX_SIDE), intensity ? 4 : 3];
  },
  FixedBinaryConv(fields, shapes, work) {
    return binaryShape(fields, shapes, work, ({ above, scale, offset, up }, what, k, o, bits) => {
      hasShape(`${what}above`, above, [k]);
      shorts(`${what}scale`, scale, [o]);
      shorts(`${what}offset`, offset, [o]);
      if (bits * 2 ** upBits(up) > HIGH)
        throw new UserError(`${what}a dot of ${bits} signs, shifted by ${up}, is more than 16 bits`);
    });
  },
  FixedDepthwise({ source, reads, weight, offset, window, after }, shapes, work) {
    const [h, w, c] = sourceShape(source, shapes),
      k = whole("reads", reads, c, MAX_CHANNELS);
    const made = windowSize(window, [h, w]);
    shorts("offset", offset, [k]);
    shorts("weight", weight, [...window.fields.kernel, k]);
    work(product(made) * (weight.values.length + k));
    return withEndings(after, [...made, k], shapes, work);
  },
  FixedConv({ source, reads, weight, offset, down, window, groups, after }, shapes, work) {
    const [h, w, c] = sourceShape(source, shapes),
      k = whole("reads", reads, c, MAX_CHANNELS),
      o = vector("offset", offset);
    const inner = k / groupsOf(groups, k, o),
      made = windowSize(window, [h, w]);
    shorts("weight", weight, [...window.fields.kernel, inner, o]);
    shorts("down", down, [o]);
    const sums = new Float64Array(o);
    weight.values.forEach((value, i) => (sums[i % o] += Math.abs(value)));
    down.values.forEach((bits, i) =>
      fits("a sum", sums[i], Math.abs(offset.values[i]) + half(downBits(bits)), 1 << 15),
    );
    work(product(made) * (weight.values.length + o));
    return withEndings(after, [...made, o], shapes, work);
  },
  FixedConstant({ value }) {
    if (value.shape.length !== 3) throw new UserError("value must be a map H,W,C");
    shorts("value", value, value.shape);
    return value.shape;
  },
  FixedAvgPool: pooled,
  FixedGlobalAvgPool({ source, up }, shapes, work) {
    upBits(up);
    return RULES.GlobalAvgPool({ source, up: 0 }, shapes, work);
  },
  FixedChannelAvg: RULES.ChannelAvg,
  FixedAbsMean: RULES.AbsMean,
});

// Of every map of an integer program, the fractional bits: value / 2^f is the real number it stands for.
function fractionsOf(ops) {
  const made = [];
  for (const { fields } of ops) {
    const { fraction = null, source, sources = [source], up = 0 } = fields;
    made.push(fraction === null ? made[sources[0]] + up : fraction);
  }
  return made;
}
