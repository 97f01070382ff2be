// JSON read strictly: no key twice, no NaN, nothing deep; whole numbers are told from real ones, since a packed file's fields are whole.
// Objects become Maps, so that no key has a meaning of its own and their order is kept.

class UserError extends Error {} // bad input, said in one sentence

class Real {
  constructor(value) {
    this.value = value;
  }
}

const MAX_DEPTH = 500; // a program has six levels
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const WORDS = new Map([
  ["true", true],
  ["false", false],
  ["null", null],
]);

// `real` makes the value of a number with a point or an exponent.
function strictJson(text, what, real = (value) => new Real(value)) {
  let at = 0;
  const bad = (why) =>
    new UserError(`${what} is not valid JSON (${why} at character ${at}): damaged or not a packed file`);

  function space() {
    while (at < text.length && " \t\n\r".includes(text[at])) at++;
  }
  function string() {
    const begin = at++;
    for (; at < text.length && text[at] !== '"'; at++) {
      if (text.charCodeAt(at) < 32) throw bad("a control character");
      if (text[at] === "\\") at++;
    }
    at++;
    try {
      return JSON.parse(text.slice(begin, at)); // it knows the escapes
    } catch {
      throw bad("a wrong text");
    }
  }
  function number() {
    NUMBER.lastIndex = at;
    const found = NUMBER.exec(text);
    if (!found) throw bad("an unknown word");
    at += found[0].length;
    const value = Number(found[0]);
    if (!Number.isFinite(value)) throw bad("a number that is too large");
    if (found[1] !== undefined || found[2] !== undefined) return real(value);
    return Number.isSafeInteger(value) ? value + 0 : real(value); // what is larger is no field's value
  }
  // The items between two brackets, read by `item`.
  function list(end, item) {
    at++;
    space();
    if (text[at] === end) {
      at++;
      return;
    }
    for (;;) {
      item();
      space();
      if (text[at] === end) break;
      if (text[at] !== ",") throw bad(`no ${end}`);
      at++;
      space();
    }
    at++;
  }
  function value(depth) {
    if (depth > MAX_DEPTH) throw bad("nested too deeply");
    space();
    if (text[at] === "{") {
      const made = new Map();
      list("}", () => {
        if (text[at] !== '"') throw bad("no key");
        const key = string();
        space();
        if (text[at] !== ":") throw bad("no value");
        at++;
        if (made.has(key)) throw bad("a key that occurs twice");
        made.set(key, value(depth + 1));
      });
      return made;
    }
    if (text[at] === "[") {
      const made = [];
      list("]", () => made.push(value(depth + 1)));
      return made;
    }
    if (text[at] === '"') return string();
    for (const [word, meant] of WORDS)
      if (text.startsWith(word, at)) {
        at += word.length;
        return meant;
      }
    return number();
  }

  const made = value(0);
  space();
  if (at !== text.length) throw bad("something behind its end");
  return made;
}

// A value as an error shows it: of a length that fits a sentence.
function shown(value) {
  const plain = (item) =>
    item instanceof Real
      ? item.value
      : item instanceof Map
        ? Object.fromEntries([...item].map(([k, v]) => [k, plain(v)]))
        : Array.isArray(item)
          ? item.slice(0, 40).map(plain)
          : item;
  const text = String(JSON.stringify(plain(value))).replace(/[^\x20-\x7e]/g, "?");
  return text.length <= 80 ? text : `${text.slice(0, 77)}...`;
}

function isTable(value) {
  return value instanceof Map;
}
