// images.fit, to the bit: Pillow's bilinear filter in 8 bits (antialiased, horizontal first, coefficients of 22 bits), then the centre.
// A canvas resizes otherwise, and every browser in its own way. Pixels are bytes, four a pixel as a canvas has them; the fourth is left out.

const PRECISION = 22; // bits behind the point of a coefficient: 8 for the byte and 2 to spare make 32
const WHOLE = 1 << 24; // of images.py: an image whose resized whole would be larger is cut first

// What output pixels first ... first + count of `size` are made of, in an input that has `inside` pixels and of which begin ... end is read.
function coefficients(inside, begin, end, size, first, count) {
  const scale = Math.fround(end - begin) / size, support = Math.max(scale, 1), pixels = [];
  for (let at = first; at < first + count; at++) {
    const centre = begin + (at + 0.5) * scale;
    const low = Math.max(Math.trunc(centre - support + 0.5), 0), high = Math.min(Math.trunc(centre + support + 0.5), inside);
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
      let r = 1 << (PRECISION - 1), g = r, b = r;
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

// The rectangle `box` of an image resized to `size`, and of that the pixels from `at` on that `out` takes; all are [x, y]. Pillow leaves a
// side that fits already as it is.
function resized(pixels, given, box, size, at, out) {
  const across = coefficients(given[0], box[0], box[2], size[0], at[0], out[0]);
  const down = coefficients(given[1], box[1], box[3], size[1], at[1], out[1]);
  const same = (side) => size[side] === given[side] && box[side] === 0 && box[side + 2] === size[side];
  const keep = (list, first) => list.forEach((one, i) => Object.assign(one, { low: first + i, weights: Int32Array.of(1 << PRECISION) }));
  if (same(0)) keep(across, at[0]);
  if (same(1)) keep(down, at[1]);
  const first = down[0].low, last = Math.max(...down.map(({ low, weights }) => low + weights.length));
  const middle = new Uint8Array((last - first) * out[0] * 3), made = new Uint8Array(out[1] * out[0] * 3);
  pass(pixels.subarray(first * given[0] * 4), 4, given[0] * 4, across, last - first, middle, 3, out[0] * 3);
  for (const one of down) one.low -= first;
  pass(middle, out[0] * 3, 3, down, out[0], made, out[0] * 3, 3);
  return made;
}

function roundedToEven(value) {
  const low = Math.floor(value), rest = value - low;
  return rest > 0.5 || (rest === 0.5 && low % 2) ? low + 1 : low;
}

// RGBA bytes of width x height -> RGB bytes of `size` = [height, width]: resized to cover size / crop, then the centre.
function fit(pixels, width, height, [toHeight, toWidth], crop) {
  if (width === toWidth && height === toHeight) return resized(pixels, [width, height], [0, 0, width, height], [width, height], [0, 0], [width, height]);
  const ratio = Math.max(toHeight / crop / height, toWidth / crop / width);
  const larger = [Math.max(toWidth, roundedToEven(width * ratio)), Math.max(toHeight, roundedToEven(height * ratio))];
  const left = Math.floor((larger[0] - toWidth) / 2), top = Math.floor((larger[1] - toHeight) / 2);
  if (larger[0] * larger[1] > Math.max(WHOLE, 4 * toWidth * toHeight)) {
    const x = width / larger[0], y = height / larger[1];
    const box = [left * x, top * y, Math.min(width, (left + toWidth) * x), Math.min(height, (top + toHeight) * y)].map(Math.fround);
    return resized(pixels, [width, height], box, [toWidth, toHeight], [0, 0], [toWidth, toHeight]);
  }
  return resized(pixels, [width, height], [0, 0, width, height], larger, [left, top], [toWidth, toHeight]);
}
