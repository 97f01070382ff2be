// images.fit, to the bit: Pillow's bilinear filter in 8 bits (antialiased, columns first, coefficients of 22 bits), then the centre.
// A canvas resizes otherwise, and every browser in its own way. Pixels are bytes, four a pixel as a canvas has them; the fourth is left out.

const PRECISION = 22; // bits behind the point of a coefficient: 8 for the byte and 2 to spare make 32
const WHOLE = 1 << 24; // of images.py: an image whose resized whole would be larger is cut first

// What output pixels first ... first + count of `size` are made of, in an input that has `inside` pixels and of which begin ... end is read.
function coefficients(inside, begin, end, size, first, count) {
  const scale = Math.fround(end - begin) / size,
    support = Math.max(scale, 1),
    pixels = [];
  for (let at = first; at < first + count; at++) {
    const centre = begin + (at + 0.5) * scale;
    const low = Math.max(Math.trunc(centre - support + 0.5), 0),
      high = Math.min(Math.trunc(centre + support + 0.5), inside);
    const weights = [];
    let sum = 0;
    for (let x = low; x < high; x++) {
      const weight = Math.max(1 - Math.abs((x - centre + 0.5) * (1 / support)), 0);
      weights.push(weight);
      sum += weight;
    }
    const whole = weights.map((weight) => Math.trunc(0.5 + (sum ? weight / sum : weight) * (1 << PRECISION)));
    pixels.push({ low, weights: Int32Array.from(whole) });
  }
  return pixels;
}

// `lines` x `count` pixels; `step` and `line` are the bytes of `from` from one pixel to the next, and from one line to the next. A sum of
// coefficients is one within a few units, so that the sums below stay in 31 bits, and no value leaves its byte.
function pass(from, step, line, pixels, lines, to, toStep, toLine) {
  for (let i = 0; i < pixels.length; i++) {
    const { low, weights } = pixels[i];
    for (let y = 0; y < lines; y++) {
      let r = 1 << (PRECISION - 1),
        g = r,
        b = r;
      for (let k = 0, at = y * line + low * step; k < weights.length; k++, at += step) {
        const weight = weights[k];
        r = (r + from[at] * weight) | 0;
        g = (g + from[at + 1] * weight) | 0;
        b = (b + from[at + 2] * weight) | 0;
      }
      const at = y * toLine + i * toStep;
      to[at] = Math.min(r >> PRECISION, 255);
      to[at + 1] = Math.min(g >> PRECISION, 255);
      to[at + 2] = Math.min(b >> PRECISION, 255);
    }
  }
}

// What a side is made of that fits already: Pillow leaves it as it is.
function kept(first, count) {
  return Array.from({ length: count }, (_, i) => ({ low: first + i, weights: Int32Array.of(1 << PRECISION) }));
}

// The rectangle `box` of an image resized to `size`, and of that the pixels from `at` on that `out` takes; all are [x, y].
function resized(pixels, given, box, size, at, out, rowsFirst) {
  const [across, down] = [0, 1].map((side) =>
    size[side] === given[side] && box[side] === 0 && box[side + 2] === size[side]
      ? kept(at[side], out[side])
      : coefficients(given[side], box[side], box[side + 2], size[side], at[side], out[side]),
  );
  // Only those lines of the first pass that the second one reads.
  const second = rowsFirst ? across : down;
  const first = second[0].low,
    lines = second.at(-1).low + second.at(-1).weights.length - first;
  for (const one of second) one.low -= first;
  const made = new Uint8Array(out[0] * out[1] * 3),
    line = given[0] * 4;
  if (rowsFirst) {
    const middle = new Uint8Array(lines * out[1] * 3);
    pass(pixels.subarray(first * 4), line, 4, down, lines, middle, lines * 3, 3);
    pass(middle, 3, lines * 3, across, out[1], made, 3, out[0] * 3);
  } else {
    const middle = new Uint8Array(lines * out[0] * 3);
    pass(pixels.subarray(first * line), 4, line, across, lines, middle, 3, out[0] * 3);
    pass(middle, out[0] * 3, 3, down, out[0], made, out[0] * 3, 3);
  }
  return made;
}

function roundedToEven(value) {
  const low = Math.floor(value),
    rest = value - low;
  return rest > 0.5 || (rest === 0.5 && low % 2) ? low + 1 : low;
}

// RGBA bytes of width x height -> RGB bytes of `size` = [height, width]: resized to cover size / crop, then the centre.
function fit(pixels, width, height, [toHeight, toWidth], crop) {
  const given = [width, height],
    to = [toWidth, toHeight],
    all = [0, 0, width, height];
  if (width === toWidth && height === toHeight) return resized(pixels, given, all, given, [0, 0], to, false);
  const ratio = Math.max(toHeight / crop / height, toWidth / crop / width);
  const larger = given.map((side, i) => Math.max(to[i], roundedToEven(side * ratio)));
  const at = larger.map((side, i) => Math.floor((side - to[i]) / 2));
  if (larger[0] * larger[1] <= Math.max(WHOLE, 4 * toWidth * toHeight))
    return resized(pixels, given, all, larger, at, to, false);
  const scale = given.map((side, i) => side / larger[i]);
  const begin = at.map((side, i) => side * scale[i]);
  const end = given.map((side, i) => Math.min(side, (at[i] + to[i]) * scale[i]));
  return resized(pixels, given, [...begin, ...end].map(Math.fround), to, [0, 0], to, height > width);
}
