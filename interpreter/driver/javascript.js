// The driver of Node.js, 18 and newer. It needs nothing but the interpreter.
//
// Until the first cell it waits in a blocking read, so that a program finds a
// process in which nothing else goes on. From then on the event loop runs
// between the cells too, and what they left there with it.
//
// Cells are evaluated by V8 itself in its REPL mode, the one of the console of
// Chrome, by way of an inspector's session inside this process: declarations
// may be repeated, await stands at the top level, the last value is the
// result, and nobody has to parse the code to get there. Only what is for
// modules alone, import and export, is rewritten first.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const { createRequire, isBuiltin } = require('module');
const { pathToFileURL } = require('url');

// Ours, whatever a program makes of the originals.
const { readSync, writeSync, readdirSync, mkdirSync, rmdirSync } = fs;
const { parse, stringify } = JSON;
const { apply } = Reflect;
const { then } = Promise.prototype;
const leave = process.reallyExit.bind(process);
const later = setImmediate;

const channel = 3;
const artifacts = '/workspace/artifacts';

// The longest JSON form of a result that is worth its way.
const maxJSON = 8 << 20;

function say(message) {
  sayLine(stringify(message));
}

function sayLine(line) {
  let data = Buffer.from(line + '\n');
  while (data.length > 0) {
    try {
      data = data.subarray(writeSync(channel, data));
    } catch (err) {
      if (err.code !== 'EAGAIN') leave(1); // nobody is listening any more
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

// --- Orders ---

let pending = []; // parts of an order whose end is not there yet

// split returns the orders that a chunk completes.
function split(chunk) {
  const orders = [];
  for (let end; (end = chunk.indexOf(10)) >= 0; chunk = chunk.subarray(end + 1)) {
    orders.push(parse(Buffer.concat([...pending, chunk.subarray(0, end)]).toString()));
    pending = [];
  }
  if (chunk.length > 0) pending.push(chunk);
  return orders;
}

function wait() {
  for (let orders = []; ; ) {
    while (orders.length > 0) {
      const order = orders.shift();
      if (order.op === 'program') return program(order);
      if (order.op === 'cell') return cells([order, ...orders]);
      simple(order);
    }
    const chunk = Buffer.allocUnsafe(1 << 16);
    const n = read(chunk);
    if (n === 0) leave(0);
    orders = split(chunk.subarray(0, n));
  }
}

function read(chunk) {
  for (;;) {
    try {
      return readSync(channel, chunk);
    } catch (err) {
      if (err.code === 'ECONNRESET') return 0;
      if (err.code !== 'EAGAIN') throw err;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}

function simple(order) {
  if (order.op === 'ping') say({ type: 'pong', nonce: order.nonce });
  if (order.op === 'warm') {
    for (const name of ['assert', 'child_process', 'crypto', 'events', 'fs/promises', 'http', 'https', 'os', 'stream', 'timers/promises', 'util', 'zlib']) require(name);
    void [process.stdout, process.stderr, globalThis.Headers, globalThis.crypto, globalThis.TextDecoder];
  }
}

// enter sets what an order says of its surroundings, and returns what takes
// the environment back.
function enter(order) {
  if (order.cwd) process.chdir(order.cwd);
  const before = Object.keys(order.env || {}).map((name) => [name, process.env[name]]);
  Object.assign(process.env, order.env);
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

// Output is never left behind: Node.js does not wait for a pipe of its own
// accord when a program exits.
function blocking(name) {
  const original = Object.getOwnPropertyDescriptor(process, name);
  if (!original || !original.get || !original.configurable) return;
  Object.defineProperty(process, name, {
    ...original,
    get() {
      Object.defineProperty(process, name, original);
      const stream = process[name];
      if (stream && stream._handle && stream._handle.setBlocking) stream._handle.setBlocking(true);
      return stream;
    },
  });
}

// The one warning that is about us and not about the program.
function muteOurWarning() {
  const { emitWarning } = process;
  process.emitWarning = function (warning) {
    if (String(warning).includes('USE_MAIN_CONTEXT_DEFAULT_LOADER')) return;
    apply(emitWarning, process, arguments);
  };
}

const loader = vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;

// --- Programs ---

// program runs one program, with main(arguments) called when arguments were
// given, or when main is defined and the program does not call it itself. The
// process ends as Node.js ends it; the end is said last of all.
function program(order) {
  process.removeListener('SIGINT', interrupt);
  let returned, failure, unheard, tray;
  onExit((code) => {
    // Node.js would write this once the exit is over, when nobody reads any more.
    if (unheard && code !== 0) writeOut(2, unheard);
    const line = ['"type":"end","code":' + code];
    if (returned !== undefined) line.push('"returned":' + returned);
    if (failure && code !== 0) line.push('"failure":' + stringify(failure));
    if (anyArtifacts()) line.push('"artifacts":true');
    takeAway(tray);
    sayLine('{' + line.join() + '}');
    if (unheard && code !== 0) leave(code);
  });
  process.on('uncaughtExceptionMonitor', (err) => {
    failure = describe(err);
    const heard = process.listenerCount('uncaughtException') > 0 || process.hasUncaughtExceptionCaptureCallback();
    unheard = heard ? undefined : failure.traceback + '\n';
  });

  function fail(err) {
    failure = describe(err);
    writeOut(2, failure.traceback + '\n');
    process.exitCode = 1;
  }

  const given = order.arguments !== undefined && order.arguments !== null;
  let source, name;

  // A program that is a module: it imports, exports or awaits at its top level.
  async function load() {
    const tail = "\n;return typeof main === 'function' ? main : undefined;";
    const module = { exports: {}, filename: name, children: [], loaded: false };
    const params = ['exports', 'require', 'module', '__filename', '__dirname'];
    let body;
    try {
      body = vm.compileFunction(source + tail, params, { filename: 'main.js', importModuleDynamically: loader });
    } catch (err) {
      if (!(err instanceof SyntaxError) || !/import|export|await|import\.meta/.test(source)) throw err;
      return loadModule(err);
    }
    const require = createRequire(name);
    // Scripts that ask whether they are the program are it, unless their main
    // is called for them.
    if (!given) require.main = module;
    const found = body(module.exports, require, module, name, path.dirname(name));
    const out = module.exports;
    return found || (typeof out === 'function' ? out : out && typeof out.main === 'function' ? out.main : undefined);
  }

  async function loadModule(cause) {
    const file = path.join(process.cwd(), `.brig-main-${process.pid}.mjs`);
    fs.writeFileSync(file, source + "\n;export const __brig_main = typeof main === 'function' ? main : undefined;\n");
    try {
      const m = await import(pathToFileURL(file).href);
      return m.__brig_main || (typeof m.default === 'function' ? m.default : undefined);
    } catch (err) {
      // If it is no module either, the first complaint is the right one.
      if (err instanceof SyntaxError && !/\b(import|export|await)\b/.test(String(cause.message))) throw cause;
      throw err;
    } finally {
      fs.rmSync(file, { force: true });
    }
  }

  // Scripts that call main themselves are left alone, unless there are arguments.
  function callsMain() {
    const uses = source.match(/(^|[^.\w$])main\s*\(/g) || [];
    const definitions = source.match(/\bfunction\s*\*?\s*main\s*\(/g) || [];
    return uses.length > definitions.length;
  }

  (async () => {
    enter(order);
    source = String(order.code || '').replace(/^\uFEFF/, '').replace(/^#!.*/, '');
    name = path.join(process.cwd(), 'main.js');
    if (order.artifacts) tray = layOut('artifacts');
    process.argv.splice(1, process.argv.length - 1, name);
    const main = await load();
    if (!main) {
      if (given) throw new ReferenceError('arguments were given, but the program defines no function called main');
      return;
    }
    if (!given && callsMain()) return;
    const value = await main(given ? order.arguments : {});
    if (value === undefined) return;
    if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError('main returned a value that JSON cannot carry: ' + value);
    const json = stringify(value);
    if (json === undefined) throw new TypeError('main returned a value that JSON cannot carry: a ' + typeof value);
    returned = json;
  })().catch(fail);
}

// onExit calls f with the exit code after all that listens for the exit.
function onExit(f) {
  const { emit } = process;
  let said = false;
  const wrapped = function (event, code) {
    if (event !== 'exit' || said) return apply(emit, this, arguments);
    let failed = true;
    try {
      const any = apply(emit, this, arguments);
      failed = false;
      return any;
    } finally {
      said = true;
      f(failed ? 1 : Number(process.exitCode !== undefined ? process.exitCode : code) & 255);
    }
  };
  Object.defineProperty(process, 'emit', { value: wrapped, writable: true, configurable: true, enumerable: false });
}

function describe(err) {
  const isError = err instanceof Error || (err && typeof err.stack === 'string');
  const trace = isError ? String(err.stack).split('\n').filter((l) => !l.includes(__filename)).join('\n') : String(err);
  return {
    name: String((isError && err.name) || 'Error'),
    message: String(isError ? err.message : err).slice(0, 4000),
    traceback: trace.slice(-20000),
  };
}

function anyArtifacts() {
  try {
    return readdirSync(artifacts).length > 0;
  } catch {
    return false;
  }
}

// layOut makes a folder that programs count on. It returns what is to be taken
// away again, if nothing was put there.
function layOut(name) {
  try {
    mkdirSync(name);
    return path.resolve(name);
  } catch {
    return undefined; // it is there, or nobody may write here
  }
}

function takeAway(folder) {
  try {
    if (folder) rmdirSync(folder);
  } catch {
    // it is in use
  }
}

// writeOut writes all of a text to a descriptor, if anybody reads it.
function writeOut(fd, text) {
  let data = Buffer.from(text);
  while (data.length > 0) {
    try {
      data = data.subarray(writeSync(fd, data));
    } catch (err) {
      if (err.code !== 'EAGAIN') return;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

// --- Cells ---

class KeyboardInterrupt extends Error {
  constructor() {
    super('');
    this.name = 'KeyboardInterrupt';
    this.stack = this.name;
  }
}

class SystemExit extends Error {
  constructor(code) {
    super(String(code));
    this.name = 'SystemExit';
    this.stack = this.name + ': ' + this.message;
  }
}

let util, inspect, promiseHooks, session, receiver, watched;
let count = 0;
let running = null; // the cell that runs
let taken;

function interrupt() {
  if (running) running.reject(new KeyboardInterrupt());
}

// cells carries out orders for as long as there is a host, beginning with
// those that are here already.
function cells(orders) {
  util = require('util');
  inspect = util.inspect;
  promiseHooks = require('v8').promiseHooks;
  const inspector = require('inspector');
  session = new inspector.Session();
  session.connect();
  noInput();
  receiver = hold((value) => {
    taken = value;
  });
  prepareGlobals();

  const { Socket } = require('net');
  const socket = new Socket({ fd: channel, readable: true, writable: true });
  let busy = false;
  const advance = () => {
    if (busy || orders.length === 0) return;
    const order = orders.shift();
    if (order.op === 'cell') {
      busy = true;
      cell(order).then(() => {
        busy = false;
        advance();
      });
      return;
    }
    if (order.op === 'program') {
      socket.removeAllListeners();
      socket.unref();
      Object.assign(process, { exit, kill });
      Error.prepareStackTrace = undefined;
      process.removeListener('uncaughtException', report);
      process.removeListener('unhandledRejection', report);
      program(order);
      return;
    }
    simple(order);
    advance();
  };
  socket.on('data', (chunk) => {
    orders.push(...split(chunk));
    advance();
  });
  socket.on('error', () => leave(0));
  socket.on('close', () => leave(0));
  advance();
}

// noInput puts an empty input in the place of the host's, which would never
// end for cells and what they start.
function noInput() {
  try {
    fs.closeSync(0);
    fs.openSync('/dev/null'); // the lowest descriptor that is free
  } catch {
    // There was none.
  }
}

// hold makes a value known to the inspector, and returns its id there.
function hold(value) {
  globalThis.__brig = value;
  let id;
  session.post('Runtime.evaluate', { expression: '__brig' }, (err, answer) => {
    id = answer.result.objectId;
  });
  delete globalThis.__brig;
  return id;
}

// take is the value that a remote object of the inspector stands for.
function take(remote) {
  if (remote.objectId) {
    taken = undefined;
    session.post('Runtime.callFunctionOn', { objectId: receiver, functionDeclaration: 'function (v) { this(v); }', arguments: [{ objectId: remote.objectId }] });
    const value = taken;
    taken = undefined;
    return value;
  }
  const special = remote.unserializableValue;
  if (special === undefined) return remote.type === 'undefined' ? undefined : remote.value;
  return special.endsWith('n') ? BigInt(special.slice(0, -1)) : Number(special);
}

const { exit, kill } = process;

function prepareGlobals() {
  // A session makes the global console keep what it is given. A console of
  // one's own does not.
  const { Console } = require('console');
  const plain = new Console({ stdout: process.stdout, stderr: process.stderr });
  for (const [key, f] of Object.entries(plain)) {
    if (typeof f === 'function' && typeof console[key] === 'function') console[key] = f;
  }
  process.exit = (code) => {
    const err = new SystemExit(code === undefined ? process.exitCode || 0 : code);
    if (running) running.reject(err);
    throw err;
  };
  // While code runs our listener is put aside, and Node.js gets ready to end
  // before it sends a signal that nobody listens for: the session would be gone.
  process.kill = (pid, signal) => {
    if (Number(pid) !== process.pid || !/^(?:SIGINT|2)$/.test(signal)) return apply(kill, process, [pid, signal]);
    interrupt();
    return true;
  };
  process.on('uncaughtException', report);
  process.on('unhandledRejection', report);
  Error.prepareStackTrace = stackOf;
  const define = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  define('__import', importFrom);
  define('exports', {});
  define('module', { exports: globalThis.exports, filename: undefined, children: [], loaded: false });
  define('display', display);
  define('$$', classic);
  // What the working directory decides is decided when it is asked for.
  const computed = (name, get) =>
    Object.defineProperty(globalThis, name, {
      get,
      set: (value) => define(name, value),
      configurable: true,
      enumerable: false,
    });
  computed('require', inDir((file) => createRequire(file)));
  computed('__filename', () => path.join(process.cwd(), 'cell.js'));
  computed('__dirname', () => process.cwd());
  computed('__importMeta', () => ({ url: pathToFileURL(path.join(process.cwd(), 'cell.js')).href, filename: path.join(process.cwd(), 'cell.js'), dirname: process.cwd() }));
}

// inDir remembers what f makes of a file in the working directory until that
// is another.
function inDir(f) {
  let dir, made;
  return () => {
    const now = process.cwd();
    if (now !== dir) {
      made = f(path.join(now, 'cell.js'));
      dir = now;
    }
    return made;
  };
}

// report tells of an error that no cell waits for.
function report(err) {
  if (err instanceof SystemExit || err instanceof KeyboardInterrupt) return;
  writeOut(2, 'Uncaught ' + explain(err).traceback + '\n');
}

// cell runs one cell and says its end. It does not fail.
async function cell(order) {
  const name = `cell-${++count}.js`;
  say({ type: 'started', count });
  let restore = () => {};
  const state = { waits: [], result: undefined, reject: undefined };
  try {
    // Whoever took our listener away wanted to have a signal's default, which
    // is not a cell's to decide.
    if (!process.listeners('SIGINT').includes(interrupt)) process.on('SIGINT', interrupt);
    restore = enter(order);
    const { value } = await evaluate(String(order.code || ''), name, state);
    while (state.waits.length > 0) await state.race(Promise.all(state.waits.splice(0)));
    const data = state.result || (value === undefined ? undefined : await state.race(bundle(value)));
    await quiet();
    if (data) say({ type: 'result', data });
  } catch (err) {
    await quiet();
    say({ type: 'error', ...explain(err, name) });
  }
  running = null;
  restore();
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  say({ type: 'end' });
}

// quiet lets what a cell has set off in this turn of the loop be heard first,
// such as a rejection that nobody handles.
function quiet() {
  return new Promise((resolve) => later(resolve));
}

// evaluate resolves with the last value of a cell, in a box.
function evaluate(code, name, state) {
  const source = scriptOf(code);
  const ended = new Promise((resolve, reject) => {
    const stop = new Promise((_, stopped) => {
      state.reject = (err) => {
        stopped(err);
        reject(err);
      };
    });
    stop.catch(() => {});
    state.race = (promise) => Promise.race([promise, stop]);
    running = state;
    state.answered = (err, answer) => {
      if (state.promise) unsettled.delete(state.promise);
      if (running !== state) return; // it was interrupted, and has ended long since
      if (err) return later(() => reject(err)); // perhaps because it is being interrupted
      const value = take(answer.exceptionDetails ? answer.exceptionDetails.exception || answer.result : answer.result);
      if (answer.exceptionDetails) awaitInterrupt(value);
      if (answer.exceptionDetails) return reject(withPlace(value, answer.exceptionDetails, source));
      if (!util.types.isPromise(value)) return resolve({ value });
      apply(then, value, [(value) => resolve({ value }), reject]);
    };
  });
  ended.catch(() => {}); // it may fail before anybody waits for it
  const order = { expression: source.code + '\n//# sourceURL=' + name, replMode: true, objectGroup: 'cell' };
  globalThis.__brig = () => {
    delete globalThis.__brig;
    const stop = promiseHooks.onInit((promise) => {
      stop();
      unsettled.add((state.promise = promise));
    });
    session.post('Runtime.evaluate', order, state.answered);
    stop();
    // What follows an await that need not wait can be interrupted as well.
    if (typeof process._tickCallback === 'function') process._tickCallback();
  };
  watched = watched || new vm.Script('__brig()', { filename: border });
  try {
    watched.runInThisContext({ breakOnSigint: true, displayErrors: false });
  } catch (err) {
    state.reject(err && err.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? new KeyboardInterrupt() : err);
  }
  return ended;
}

// awaitInterrupt waits a moment where a child of the cell was ended by SIGINT.
// Then the same signal is on its way to us: the thread that receives it may be
// late, and would interrupt the next cell. The signal ends the wait.
function awaitInterrupt(err) {
  if (util.types.isNativeError(err) && err.signal === 'SIGINT') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
}

// The promises of cells that have not ended. If V8 collected one, the inspector
// would tell us so in the midst of the collection, and Node.js would abort.
const unsettled = new Set();

// The places of the syntax errors of cells; undefined for those of modules,
// which know their own.
const places = new WeakMap();

// withPlace remembers where a cell's own syntax is wrong: the error does not
// say.
function withPlace(err, details, source) {
  if (err instanceof SyntaxError && !places.has(err) && !/\n +at /.test(String(err.stack))) {
    const lines = source.original.split('\n');
    let { lineNumber: line, columnNumber: column } = details;
    if (line === 0) column -= source.shift;
    // What is missing at the end is missing before the line that we added.
    if (line >= lines.length) [line, column] = [lines.length - 1, lines[lines.length - 1].length];
    places.set(err, { line, column, text: lines[line] });
  }
  return err;
}

// explain makes an error message's fields of whatever was thrown.
function explain(err, name) {
  try {
    const isError = util.types.isNativeError(err) || err instanceof Error;
    if (!isError) {
      const text = typeof err === 'string' ? err : inspect(err);
      return { name: 'Error', value: text, traceback: 'Uncaught ' + inspect(err) };
    }
    let trace = String(err.stack);
    const place = places.get(err);
    if (place) {
      const { line, column, text } = place;
      const arrow = text.slice(0, Math.max(column, 0)).replace(/[^\t]/g, ' ') + '^';
      name = name || 'cell.js';
      trace = `${name}:${line + 1}\n${text}\n${arrow}\n\n${trace}\n    at ${name}:${line + 1}:${column + 1}`;
    }
    const seen = new Set([err]);
    for (let cause = err.cause; cause !== undefined && !seen.has(cause) && seen.size < 8; cause = cause && cause.cause) {
      seen.add(cause);
      trace += '\nCaused by: ' + (cause instanceof Error ? String(cause.stack) : inspect(cause));
    }
    if (Array.isArray(err.errors)) trace += '\n' + err.errors.slice(0, 8).map((e) => 'One of: ' + (e instanceof Error ? String(e.stack) : inspect(e))).join('\n');
    return { name: String(err.name || 'Error'), value: String(err.message), traceback: trace };
  } catch {
    return { name: 'Error', value: 'an error that cannot be shown', traceback: '' };
  }
}

// border is the name of the script between our frames and those of a cell.
const border = 'brig:cell';

// frames are the lines of a stack that are not ours.
function frames(lines, fileOf) {
  const end = lines.findIndex((l) => /^(?:brig:cell|node:inspector)$/.test(fileOf(l)));
  return (end < 0 ? lines : lines.slice(0, end)).filter((l) => fileOf(l) !== __filename && fileOf(l) !== 'node:internal/process/task_queues');
}

// stackOf is a stack as V8 and Node.js write it, without our frames.
function stackOf(err, sites) {
  let head;
  try {
    head = typeof err.code === 'string' && err.code.startsWith('ERR_') && err.name ? `${err.name} [${err.code}]: ${err.message}` : Error.prototype.toString.call(err);
  } catch {
    head = '<error>';
  }
  return [head, ...frames(sites, (site) => String(site.getFileName()))].join('\n    at ');
}

// The end of a cell that was TypeScript: what it imports may be but a type.
const typesErased = '\n// types erased';

// scriptOf makes a script of a cell.
function scriptOf(original) {
  let code = original.replace(/^\uFEFF/, '').replace(/^#!.*/, '');
  const typed = code.endsWith(typesErased);
  if (typed) code = code.slice(0, -typesErased.length);
  if (/\b(import|export)\b/.test(code)) {
    try {
      code = rewrite(code, typed);
    } catch {
      // It is V8's to say what is wrong with it.
    }
  }
  // {a: 1} is an object, unless it can only be a block.
  if (/^\s*\{/.test(code) && /\}\s*$/.test(code)) {
    try {
      new vm.Script('async () => (' + code + '\n)');
      return { code: '(' + code + '\n)', original, shift: 1 };
    } catch {
      // A block it is.
    }
  }
  return { code, original, shift: 0 };
}

// --- Values ---

const methods = [
  ['_toHtml', 'text/html'], ['toHTML', 'text/html'], ['_toMarkdown', 'text/markdown'], ['_toSvg', 'image/svg+xml'], ['toSVG', 'image/svg+xml'],
  ['_toPng', 'image/png'], ['_toJpeg', 'image/jpeg'], ['_toLatex', 'text/latex'],
];

// bundle is a value in all the forms that it has.
async function bundle(value) {
  const data = {};
  if (value !== null && (typeof value === 'object' || typeof value === 'function')) {
    const own = value[Symbol.for('Jupyter.display')];
    if (typeof own === 'function') {
      const forms = await own.call(value);
      if (forms && typeof forms === 'object') return encoded(forms);
    }
    if (typeof value._toMime === 'function') Object.assign(data, await value._toMime());
    for (const [method, type] of methods) {
      if (!(type in data) && typeof value[method] === 'function') data[type] = await value[method]();
    }
  }
  const text = inspect(value);
  const json = plain(value) ? jsonOf(value) : undefined;
  return { 'text/plain': text, ...(json === undefined ? {} : { 'application/json': json }), ...encoded(data) };
}

// plain tells a plain object or an array from what has a nature of its own.
function plain(value) {
  if (value === null || typeof value !== 'object') return false;
  if (Array.isArray(value)) return true;
  const proto = Object.getPrototypeOf(value);
  return proto === null || proto === Object.prototype;
}

// jsonOf is a value as JSON can carry it, or undefined.
function jsonOf(value) {
  try {
    const json = stringify(value);
    return json === undefined || json.length > maxJSON ? undefined : parse(json);
  } catch {
    return undefined;
  }
}

// encoded puts each form into the shape in which it travels.
function encoded(forms) {
  const data = {};
  for (const [type, form] of Object.entries(forms)) {
    if (form === undefined || form === null) continue;
    if (/\bjson$/.test(type)) {
      const json = jsonOf(form);
      if (json !== undefined) data[type] = json;
    } else if (ArrayBuffer.isView(form)) {
      data[type] = Buffer.from(form.buffer, form.byteOffset, form.byteLength).toString(/^text\/|\bsvg\b/.test(type) ? 'utf8' : 'base64');
    } else {
      data[type] = String(form);
    }
  }
  return data;
}

// display shows a value, or a promise of one, in the midst of a cell.
function display(value) {
  show(Promise.resolve(value).then(bundle), bundleNow(value));
}

// bundleNow is the bundle of a value that need not be waited for, so that it
// is shown where it stands among the output.
function bundleNow(value) {
  if (util.types.isPromise(value)) return undefined;
  if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return { 'text/plain': inspect(value) };
  if (value[Symbol.for('Jupyter.display')] || value._toMime || methods.some(([m]) => value[m])) return undefined;
  const json = plain(value) ? jsonOf(value) : undefined;
  return { 'text/plain': inspect(value), ...(json === undefined ? {} : { 'application/json': json }) };
}

function show(promise, now) {
  const cell = running;
  const out = (data) => {
    if (running === cell && cell) say({ type: 'display', data });
  };
  if (now) return out(now);
  const shown = promise.then(out);
  if (cell) cell.waits.push(shown);
  shown.catch(() => {});
}

const shapes = {
  text: 'text/plain', html: 'text/html', markdown: 'text/markdown', svg: 'image/svg+xml', png: 'image/png', jpeg: 'image/jpeg',
  pdf: 'application/pdf', json: 'application/json', latex: 'text/latex', javascript: 'application/javascript',
};
for (const [name, type] of Object.entries(shapes)) {
  display[name] = (form) => show(undefined, encoded({ [type]: form }));
}
display.mime = (forms) => show(undefined, encoded(forms));

// classic is $$ as IJavascript has it: its forms are the cell's result.
const classic = { display };
for (const [name, type] of Object.entries(shapes)) {
  classic[name] = (form) => classic.mime({ [type]: form });
}
classic.mime = (forms) => {
  if (!running) return;
  if (running.result) say({ type: 'display', data: running.result });
  running.result = encoded(forms);
};
classic.async = () => {
  const cell = running;
  if (!cell) return;
  cell.waits.push(new Promise((resolve, reject) => {
    classic.done = (value) => {
      if (value !== undefined && running === cell) cell.waits.push(bundle(value).then((data) => { cell.result = data; }));
      resolve();
    };
    classic.sendResult = classic.done;
    classic.sendError = reject;
  }));
};
classic.done = classic.sendResult = () => {};
classic.sendError = (err) => {
  throw err;
};

// --- Modules in cells ---

// A script of the working directory's own, so that import() looks there.
const dirImport = inDir((file) =>
  new vm.Script('(name, options) => options ? import(name, options) : import(name)', { filename: file, importModuleDynamically: loader }).runInThisContext());

// importFrom is import(), as a cell has it. A statement also says which names
// it needs.
function importFrom(name, options, needed) {
  return imported(name, options, needed).catch((err) => {
    if (err instanceof SyntaxError) places.set(err, undefined);
    throw err;
  });
}

async function imported(name, options, needed) {
  let module;
  if (loader) {
    module = await dirImport()(name, options);
  } else {
    // Older versions import from here, so here must be told where to look.
    let target = String(name);
    if (/^\.{0,2}\//.test(target)) {
      target = pathToFileURL(path.resolve(target)).href;
    } else if (!/^[a-z]+:/.test(target) && !isBuiltin(target)) {
      try {
        target = pathToFileURL(createRequire(path.join(process.cwd(), 'cell.js')).resolve(target)).href;
      } catch {
        // The name as it is makes the better complaint.
      }
    }
    try {
      module = await (options ? import(target, options) : import(target));
    } catch (err) {
      if (err && err.code === 'ERR_MODULE_NOT_FOUND') err.message = err.message.replace(__filename, path.join(process.cwd(), 'cell.js'));
      throw err;
    }
  }
  for (const key of needed || []) {
    if (!(key in module)) throw new SyntaxError(`The requested module '${name}' does not provide an export named '${key}'`);
  }
  return module;
}

const lexemes = {
  space: /(?:\s+|\/\/.*|\/\*[^]*?\*\/)+/y,
  word: /#?[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*/uy,
  number: /\.?\d[\w.]*/y,
  string: /'(?:[^'\\\n]+|\\[^])*'|"(?:[^"\\\n]+|\\[^])*"/y,
  regex: /\/(?:[^/\\[\n]+|\\.|\[(?:[^\]\\\n]+|\\.)*\])+\/[a-z]*/y,
  template: /(?:[^`\\$]+|\\[^]|\$(?!\{))*(?:`|\$\{)/y,
};

// Words after which a slash begins a regular expression.
const operators = /^(?:return|typeof|case|in|of|delete|void|instanceof|new|throw|yield|await|do|else)$/;

// tokensOf takes code apart as far as is needed to tell words from what is in
// strings, templates, comments and regular expressions. Each token knows how
// deep in brackets it is.
function tokensOf(code) {
  const tokens = [];
  const open = []; // the brackets around
  let at = 0;
  let value = false; // whether what came last was a value: a slash divides it
  const match = (kind) => {
    const re = lexemes[kind];
    re.lastIndex = at;
    const m = re.exec(code);
    return m && m[0];
  };
  const push = (kind, text) => {
    tokens.push({ kind, text, start: at, end: at + text.length, depth: open.length });
    at += text.length;
  };
  const template = () => {
    const text = match('template');
    if (text === null) throw new SyntaxError('unterminated template');
    if (text.endsWith('${')) open.push({ text: '${' });
    at += text.length;
    value = !text.endsWith('${');
  };
  for (;;) {
    const space = match('space');
    if (space) at += space.length;
    if (at >= code.length) return tokens;
    const c = code[at];
    const last = tokens[tokens.length - 1];
    let text;
    if ((text = match('word'))) {
      value = !operators.test(text) || (last !== undefined && last.text === '.');
      push('word', text);
    } else if ((text = match('number'))) {
      value = true;
      push('number', text);
    } else if ((text = match('string'))) {
      value = true;
      push('string', text);
    } else if (c === '`') {
      push('template', c);
      template();
    } else if (c === '/' && !value && (text = match('regex'))) {
      value = true;
      push('regex', text);
    } else if (c === '}' && open.length > 0 && open[open.length - 1].text === '${') {
      open.pop();
      push('template', c);
      template();
    } else {
      if ('([{'.includes(c)) {
        push('sign', c);
        open.push({ text: c, condition: last !== undefined && /^(?:if|while|for|with)$/.test(last.text) });
        value = false;
      } else if (')]}'.includes(c)) {
        const closed = open.pop();
        push('sign', c);
        value = c === ']' || (c === ')' && !(closed && closed.condition));
      } else {
        push('sign', c);
        value = false;
      }
    }
  }
}

// rewrite makes what only modules may say into what a script may: import
// statements, import(), import.meta and export. Lines stay where they are.
function rewrite(code, typed) {
  const tokens = tokensOf(code);
  const edits = [];
  const replace = (start, end, text) => {
    const lines = code.slice(start, end).split('\n').length - text.split('\n').length;
    edits.push({ start, end, text: text + '\n'.repeat(Math.max(lines, 0)) });
  };
  for (let i = 0; i < tokens.length; i++) {
    const t = tokens[i];
    if (t.kind !== 'word' || (t.text !== 'import' && t.text !== 'export')) continue;
    const before = tokens[i - 1];
    const next = tokens[i + 1];
    if (!next || (before && before.text === '.' && code.slice(t.start - 3, t.start) !== '...')) continue;
    if (t.text === 'import' && next.text === '(') {
      // A method may have this name too.
      const close = tokens.findIndex((u, j) => j > i + 1 && u.depth === t.depth && u.text === ')');
      if (close > 0 && tokens[close + 1] && tokens[close + 1].text === '{' && t.depth > 0) continue;
      replace(t.start, t.end, '__import');
    } else if (t.text === 'import' && next.text === '.') {
      const meta = tokens[i + 2];
      if (meta && meta.text === 'meta') replace(t.start, meta.end, '__importMeta');
    } else if (t.depth === 0 && next.text !== ':' && next.text !== '=') {
      i = (t.text === 'import' ? importStatement : exportStatement)(code, tokens, i, replace, typed);
    }
  }
  let out = '';
  let at = 0;
  for (const { start, end, text } of edits) {
    out += code.slice(at, start) + text;
    at = end;
  }
  return out + code.slice(at);
}

// sourceOf reads the module that a statement names, from token i on: a string
// and perhaps attributes. It returns the arguments of an import() and the last
// token's index.
function sourceOf(code, tokens, i) {
  if (!tokens[i] || tokens[i].kind !== 'string') throw new SyntaxError('no module is named');
  const attributes = tokens[i + 1];
  if (attributes && /^(?:with|assert)$/.test(attributes.text) && tokens[i + 2] && tokens[i + 2].text === '{') {
    let close = i + 3;
    while (tokens[close] && tokens[close].text !== '}') close++;
    if (tokens[close]) return { call: `${tokens[i].text}, {${attributes.text}: ${code.slice(tokens[i + 2].start, tokens[close].end)}}`, last: close };
  }
  return { call: `${tokens[i].text}, undefined`, last: i };
}

function importStatement(code, tokens, i, replace, typed) {
  const start = tokens[i].start;
  let whole, ownDefault;
  let names = null; // of the braces: pairs
  let j = i + 1;
  if (tokens[j].kind !== 'string') {
    for (; tokens[j] && tokens[j].text !== 'from'; j++) {
      const t = tokens[j];
      if (t.text === '*') {
        if (!tokens[j + 2]) throw new SyntaxError('not an import');
        whole = tokens[j + 2].text;
        j += 2;
      } else if (t.text === '{') {
        names = [];
        for (j++; tokens[j].text !== '}'; j++) {
          if (tokens[j].text === ',') continue;
          const name = tokens[j].text;
          if (tokens[j + 1].text === 'as') j += 2;
          names.push([name, tokens[j].text]);
        }
      } else if (t.kind === 'word') {
        ownDefault = t.text;
      } else if (t.text !== ',') {
        throw new SyntaxError('not an import');
      }
    }
    j++;
  }
  const { call, last } = sourceOf(code, tokens, j);
  const pairs = names || [];
  if (ownDefault) pairs.unshift(['default', ownDefault]);
  const needed = (typed ? [] : pairs).map(([name]) => (/^['"]/.test(name) ? name : `'${name}'`));
  const module = `await __import(${call}, [${needed.join()}])`;
  const pattern = '{' + pairs.map(([name, as]) => `${name}: ${as}`).join(', ') + '}';
  let text = module;
  if (whole) text = `const ${whole} = ${module}` + (pairs.length > 0 ? `, ${pattern} = ${whole}` : '');
  else if (pairs.length > 0) text = `const ${pattern} = ${module}`;
  else text = `void (${module})`;
  replace(start, tokens[last].end, text + ';');
  return last;
}

// An export of a cell is a declaration like any other.
function exportStatement(code, tokens, i, replace) {
  const next = tokens[i + 1];
  const blank = (end) => code.slice(tokens[i].start, end).replace(/[^\n]/g, ' ');
  if (next.text === 'default') {
    replace(tokens[i].start, next.end, blank(next.end));
    return i + 1;
  }
  if (next.text !== '{' && next.text !== '*') {
    replace(tokens[i].start, tokens[i].end, blank(tokens[i].end));
    return i;
  }
  let j = i + 1;
  while (tokens[j] && tokens[j].text !== '}' && tokens[j].kind !== 'string') j++;
  if (next.text === '{') {
    while (tokens[j] && tokens[j].text !== '}') j++;
    if (!tokens[j + 1] || tokens[j + 1].text !== 'from') {
      replace(tokens[i].start, tokens[j].end, blank(tokens[j].end));
      return j;
    }
    j += 2;
  }
  const { call, last } = sourceOf(code, tokens, j);
  replace(tokens[i].start, tokens[last].end, `void (await __import(${call}));`);
  return last;
}

// --- The start ---

muteOurWarning();
blocking('stdout');
blocking('stderr');
process.on('SIGINT', interrupt);
say({ type: 'ready', version: process.versions.node, flavor: 'node' });
wait();
