// What a person sees: a photo, a camera or another network goes in; classes, times and the card come out. Every text of a file is set as
// text, never as HTML.

const at = (id) => document.getElementById(id);
const TOP = 5,
  BEST_OF = 5,
  LARGEST = 89_478_485; // pixels, as images.py
let module, engine, stream;

function problem(sentence) {
  at("problem").textContent = sentence;
  at("problem").hidden = !sentence;
}

// Does `work`; what goes wrong becomes a sentence that names its subject.
async function said(subject, work) {
  problem("");
  try {
    await work();
  } catch (error) {
    problem(`${subject}: ${error instanceof UserError ? error.message : `something went wrong (${error.message})`}`);
  }
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

// --- the network --------------------------------------------------------------------------------------------------------

async function openModel(bytes, name) {
  const program = await openPacked(bytes),
    made = await Engine.make(module, program);
  const equal = made.verify(),
    all = program.seeds.length;
  engine = made;
  const sentence =
    all === 0
      ? "The file holds no test vectors: nothing to compare with."
      : equal === all
        ? `Verified: ${all} test ${all === 1 ? "vector" : "vectors"} equal, to the bit, computed in this page.`
        : `${all - equal} of ${all} test vectors differ: this browser does not compute what was packed, so do not trust its answers.`;
  at("verified").textContent = sentence;
  at("verified").className = all === 0 ? "soft" : equal === all ? "good" : "bad";
  at("result").hidden = true;
  showCard(program, name);
}

// The card in the provenance, as far as it is one: texts and numbers of other people's files may be anything.
function cardOf(program) {
  const card = program.provenance.get("card");
  const text = (key) => (isTable(card) && printable(card.get(key)) ? card.get(key) : "");
  const number = (key) => (isTable(card) && typeof card.get(key) === "number" ? card.get(key) : null);
  return { text, number };
}

function showCard(program, name) {
  const { text, number } = cardOf(program),
    [h, w] = program.shapes[0];
  const title = text("title") || name,
    top1 = number("top1"),
    images = number("images");
  document.title = title;
  at("title").textContent = title;
  at("about").textContent = text("about");
  const binary = program.ops.filter((op) => op.kind.endsWith("BinaryConv")).length;
  const rows = [
    ["File", `${name}, ${program.bytes.toLocaleString("en")} bytes`],
    ["Reads", `${w} x ${h} pixels`],
    ["Ops", `${program.ops.length}, of which ${binary} binary convolutions; in ${NUMBERS[program.ops[0].kind]}`],
    [
      "Right",
      top1 === null
        ? ""
        : `${(100 * top1).toFixed(2)} % of ${(images ?? 0).toLocaleString("en")} images of ${text("data")}`,
    ],
    ["Cannot", text("limits")],
    ["Data", text("licence")],
    ["Trained", [text("trained"), text("hardware")].filter(Boolean).join(", ")],
  ];
  at("card").replaceChildren(
    ...rows.filter(([, value]) => value).flatMap(([key, value]) => [element("dt", key), element("dd", value)]),
  );
  const [summary, all] = at("all_classes").children;
  at("all_classes").hidden = !program.labels.length;
  const known = program.rejects ? program.labels.slice(0, -1) : program.labels; // the last means none of them
  summary.textContent = `${known.length} classes, and ${program.rejects ? "a word for none of them" : "nothing else"}`;
  all.textContent = known.slice(0, 1000).join(", ") + (known.length > 1000 ? ", ..." : "");
}

function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

// --- images -------------------------------------------------------------------------------------------------------------

// What a photo, or a frame of the camera, has as bytes: on white, in the colours of its file.
function pixelsOf(source, width, height) {
  if (width * height > LARGEST)
    throw new UserError(`it has ${width} x ${height} pixels, more than are decoded here; make it smaller first`);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (!context) throw new UserError(`this browser has no canvas of ${width} x ${height} pixels; make it smaller first`);
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(source, 0, 0);
  return context.getImageData(0, 0, width, height).data;
}

function classify(source, width, height, runs) {
  const { program } = engine,
    begin = performance.now();
  const pixels = fit(pixelsOf(source, width, height), width, height, program.shapes[0], program.crop);
  const prepared = performance.now() - begin;
  let logits,
    best = Infinity;
  for (let i = 0; i < runs; i++) {
    const start = performance.now();
    logits = engine.run(pixels);
    best = Math.min(best, performance.now() - start);
  }
  return { pixels, logits, prepared, best };
}

function show({ pixels, logits, prepared, best }, runs, spoken) {
  const { program } = engine,
    [h, w] = program.shapes[0],
    last = program.shapes.at(-1);
  if (last[0] !== 1 || last[1] !== 1)
    throw new UserError(`this network ends in a map of ${last.join(" x ")}, not in classes`);
  if (!logits.every(Number.isFinite))
    throw new UserError("the logits are too large to be numbers; train or pack the network again");
  const canvas = at("seen"),
    image = new ImageData(w, h);
  [canvas.width, canvas.height] = [w, h];
  for (let i = 0; i < w * h; i++) image.data.set([pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2], 255], 4 * i);
  canvas.getContext("2d").putImageData(image, 0, 0);
  at("size").textContent = `: ${w} x ${h} pixels`;
  const label = (index) => program.labels[index] ?? String(index),
    percent = (share) => `${(100 * share).toFixed(1)} %`;
  const found = likeliest(logits, TOP),
    answer = `${label(found[0].index)}, ${percent(found[0].probability)}`;
  at("classes").replaceChildren(
    ...found.map(({ index, probability }) => {
      const row = document.createElement("li"),
        track = element("span", "", "track"),
        bar = document.createElement("i");
      bar.style.width = percent(probability).replace(" ", "");
      track.append(bar);
      track.ariaHidden = "true";
      row.append(element("span", label(index)), track, element("span", percent(probability)));
      return row;
    }),
  );
  if (spoken || !at("answer").textContent.startsWith(`${label(found[0].index)},`)) at("answer").textContent = answer;
  const milliseconds = (time) => (time < 0.1 ? "under 0.1 ms" : `${time.toFixed(1)} ms`); // a page's clock ticks in 0.1 ms
  at("time").textContent =
    `network ${milliseconds(best)}${runs > 1 ? `, best of ${runs}` : ""}; resizing ${milliseconds(prepared)}`;
  at("result").hidden = false;
  Object.assign(globalThis.bcnn, {
    logits: Array.from(logits),
    label: label(found[0].index),
    milliseconds: best,
    pixels,
  });
}

async function openFile(file) {
  await said(file.name, async () => {
    if (!module) throw new UserError("there is no engine to run it, see above");
    if (/\.bcnn$/i.test(file.name)) {
      if (file.size > MAX_FILE) throw new UserError(`it has ${file.size} bytes; a packed file has at most ${MAX_FILE}`);
      await openModel(new Uint8Array(await file.arrayBuffer()), file.name);
      return;
    }
    stopCamera();
    let bitmap;
    try {
      bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", imageOrientation: "from-image" });
    } catch {
      throw new UserError(
        "this browser cannot read it as an image; give a photo such as .jpg or .png, or a .bcnn file",
      );
    }
    show(classify(bitmap, bitmap.width, bitmap.height, BEST_OF), BEST_OF, true);
    bitmap.close();
  });
  globalThis.bcnn.done = (globalThis.bcnn.done ?? 0) + 1;
}

// --- camera -------------------------------------------------------------------------------------------------------------

const REFUSED = {
  NotAllowedError: "the browser was told not to give it to this page; its address bar or settings can change that",
  NotFoundError: "there is none",
  NotReadableError: "another program uses it",
};

function stopCamera() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = undefined;
  at("video").hidden = true;
  at("camera").textContent = "Use the camera";
}

async function startCamera() {
  await said("camera", async () => {
    try {
      stream = await navigator.mediaDevices.getUserMedia({
        video: { facingMode: "environment", width: { ideal: 640 } },
      });
    } catch (error) {
      throw new UserError(REFUSED[error.name] ?? error.message);
    }
    const video = at("video"),
      mine = stream;
    video.srcObject = stream;
    video.hidden = false;
    at("camera").textContent = "Stop the camera";
    await video.play();
    const frame = () => {
      if (stream !== mine) return;
      said("camera", () => {
        if (video.videoWidth) show(classify(video, video.videoWidth, video.videoHeight, 1), 1, false);
      });
      requestAnimationFrame(frame);
    };
    frame();
  });
}

// --- start --------------------------------------------------------------------------------------------------------------

function listen() {
  at("file").addEventListener("change", async ({ target }) => {
    for (const file of target.files) await openFile(file);
    target.value = ""; // so that the same file can be chosen again
  });
  at("camera").addEventListener("click", () => (stream ? stopCamera() : startCamera()));
  if (!navigator.mediaDevices?.getUserMedia) {
    at("camera").disabled = true;
    at("no_camera").hidden = false;
    at("no_camera").textContent =
      "No camera here: browsers give it to pages that are opened from a file or by https only.";
  }
  for (const event of ["dragenter", "dragover", "dragleave", "drop"])
    addEventListener(event, (happened) => {
      happened.preventDefault();
      document.body.classList.toggle("dropping", event === "dragenter" || event === "dragover");
    });
  addEventListener("drop", async ({ dataTransfer }) => {
    for (const file of [...dataTransfer.files]) await openFile(file);
  });
}

async function start() {
  globalThis.bcnn = { openPacked, Engine, fit, likeliest, engine: () => engine }; // for tests, and for the curious
  listen();
  const missing = (what) => {
    at("verified").textContent =
      `This browser ${what}. The network needs one of 2023 or later: Chrome or Edge 91, Firefox 113, Safari 16.4.`;
    at("verified").className = "bad";
    at("camera").disabled = at("file").disabled = true;
  };
  if (typeof WebAssembly === "undefined") return missing("has no WebAssembly, or it is switched off");
  if (typeof DecompressionStream === "undefined") return missing("cannot decompress what is in this page");
  const bytes = await inflated(fromBase64(at("engine").textContent), "the engine", MAX_FILE);
  if (!WebAssembly.validate(bytes)) return missing("has no WebAssembly SIMD");
  const { textContent, dataset } = at("model");
  await said(dataset.name, async () => {
    module = await WebAssembly.compile(bytes);
    await openModel(fromBase64(textContent), dataset.name);
  });
  globalThis.bcnn.ready = true;
}

start();
