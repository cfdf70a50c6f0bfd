// The driver for Node.js 18 and newer. It needs only the interpreter.
//
// Before the first cell, it waits in a blocking read, so that a program runs
// in a process without other activity. Afterwards the event loop also runs
// between cells, with the timers and promises that cells left.
//
// V8 evaluates cells in its REPL mode, which Chrome's console also uses,
// through an inspector session in this process: declarations may be repeated,
// await is allowed at the top level, and the last value is the result. So the
// driver does not parse the code. It only rewrites import and export, which
// are allowed only in modules.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const Module = require('module');
const { pathToFileURL } = require('url');
const { createRequire, isBuiltin } = Module;

// The driver keeps its own references, so that it is not affected if a program replaces the
// originals.
const { openSync, closeSync, readSync, writeSync, readdirSync, mkdirSync, rmdirSync } = fs;
const { O_RDONLY, O_WRONLY } = fs.constants;
const { parse, stringify } = JSON;
const { keys, getOwnPropertyDescriptor, defineProperty, prototype } = Object;
const toBuffer = Buffer.from;
const { subarray } = Uint8Array.prototype;
const { apply } = Reflect;
const { then } = Promise.prototype;
const methodOf = (name, f = Array.prototype[name]) => (array, ...args) => apply(f, array, args);
const [push, shift, splice, map, filter, some, findIndex, join, includes] =
  ['push', 'shift', 'splice', 'map', 'filter', 'some', 'findIndex', 'join', 'includes'].map((name) => methodOf(name));
const exitNow = process.reallyExit.bind(process);
// Handles an error as uncaught: it calls the program's listeners, or emits the event exit and
// returns false. The second argument specifies whether the error is a promise's rejection.
const fatal = process._fatalException.bind(process);
const later = setImmediate;

let channel = 3; // the descriptor for requests
let messages = 3;
const artifacts = '/workspace/artifacts';
const driverPrefix = path.join(__dirname, 'javascript'); // the prefix of the driver's file names

// The maximum size of the JSON representation of a result.
const maxJSON = 8 << 20;

// The maximum number of representations, and the maximum length of their types. The host
// ends a driver that sends too many.
const maxForms = 256;
const maxName = 1024;

// The nonce of the current request, which its messages repeat. It lets the host
// reject lines that a program writes to the channel.
let nonce = '';

// Displays have numbers, and the host acknowledges each if the request has acks.
let acks = false;
let shown = 0;
let acked = 0;
const ackPause = 0.1; // milliseconds between two checks for an acknowledgement
// The maximum time that displays wait for acknowledgements, in milliseconds. The engine kills an
// interpreter that does not handle an interrupt within five seconds.
const ackLimit = 2000;
let missed = false; // whether the host did not acknowledge a display of the cell in time
let waited = 0; // the time that displays have waited since the event loop last ran
let handlesInterrupts = false; // whether SIGINT immediately ends the running code
const now = performance.now.bind(performance);
let early = false; // whether requests arrived while a display waited
let requestLater; // stores these requests for later

// sendDisplay sends a display, and waits until the host has received it. Otherwise the host could
// not distinguish the output before it from the output after it. The wait ends after a limited
// time, or when the host sends anything else. If the host does not acknowledge in time, later
// displays of the cell do not wait.
function sendDisplay(data) {
  if (!acks || early || missed || waited >= ackLimit) return send({ type: 'display', data });
  send({ type: 'display', ack: ++shown, data });
  const begin = now();
  missed = !awaitAck(begin + ackLimit - waited);
  if (handlesInterrupts) return;
  // Only the event loop handles interrupts. The limit applies to the total wait of all displays
  // until the event loop runs again.
  if (waited === 0) later(() => void (waited = 0));
  waited += now() - begin;
}

// awaitAck waits for the acknowledgement of the last display. It returns false if the time end
// has passed.
function awaitAck(end) {
  const chunk = Buffer.allocUnsafe(1 << 12);
  while (acked < shown) {
    let n;
    try {
      n = readSync(channel, chunk);
    } catch (err) {
      if (err.code !== 'EAGAIN') return true; // the event loop handles it
      if (now() > end) return false;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ackPause);
      continue;
    }
    const requests = parseRequests(chunk.subarray(0, n));
    early = requests.length > 0;
    if (early) requestLater(requests);
    if (n === 0 || early) return true;
  }
  return true;
}

function send({ type, ...rest }) {
  sendLine(encode({ type, nonce, ...rest }));
}

// JSON text, which is inserted into a message unchanged.
class RawJSON {
  constructor(text) {
    this.text = text;
  }
}

// encode returns the JSON of a message, even if the program has changed what all
// objects inherit, such as toJSON.
function encode(value) {
  if (value instanceof RawJSON) return value.text;
  if (value === null || typeof value !== 'object') return stringify(value);
  let text = '';
  const names = keys(value);
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    if (value[name] !== undefined) text += (text && ',') + stringify(name) + ':' + encode(value[name]);
  }
  return '{' + text + '}';
}

function sendLine(line) {
  let data = toBuffer(line + '\n');
  while (data.length > 0) {
    try {
      data = apply(subarray, data, [writeSync(messages, data)]);
    } catch (err) {
      if (err.code !== 'EAGAIN') exitNow(1); // the host is gone
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

// --- Requests ---

let pending = []; // parts of an incomplete request

// parseRequests returns the requests that a chunk completes, without acknowledgements.
function parseRequests(chunk) {
  const requests = [];
  for (let end; (end = chunk.indexOf(10)) >= 0; chunk = chunk.subarray(end + 1)) {
    const request = parse(Buffer.concat([...pending, chunk.subarray(0, end)]).toString());
    if (request.op === 'ack') acked = Math.max(acked, request.ack);
    else push(requests, request);
    pending = [];
  }
  if (chunk.length > 0) push(pending, toBuffer(chunk)); // the caller may use the chunk again
  return requests;
}

function begin(request) {
  nonce = request.nonce || '';
  acks = request.acks === true;
  early = false;
  missed = false;
  return request;
}

function wait() {
  for (let requests = []; ; ) {
    while (requests.length > 0) {
      const request = begin(requests.shift());
      if (request.op === 'program') return program(request);
      if (request.op === 'cell') {
        send({ type: 'taken' }); // the preparations take a while
        return cells([request, ...requests]);
      }
      if (request.op === 'park') park(request.cwd, () => closeSync(channel));
      else handleControl(request);
    }
    const chunk = Buffer.allocUnsafe(1 << 16);
    const n = read(chunk);
    if (n === 0) exitNow(0);
    requests = parseRequests(chunk.subarray(0, n));
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

function handleControl(request) {
  if (request.op === 'ping') send({ type: 'pong' });
  if (request.op === 'renew') require('./javascript_renew.js').renew();
  if (request.op === 'warm') {
    require('./javascript_program.js');
    for (const name of ['assert', 'child_process', 'crypto', 'events', 'fs/promises', 'http', 'https', 'os', 'stream', 'timers/promises', 'util', 'zlib']) require(name);
    void [process.stdout, process.stderr, globalThis.Headers, globalThis.crypto, globalThis.TextDecoder];
  }
}

// park replaces the host's descriptors, which cannot be saved, with the pipes in a folder, and
// calls close for the channel. If the pipes are missing, it does nothing.
function park(folder, close) {
  const pipes = [];
  const open = (name, flags) => pipes.push(openSync(folder + '/' + name, flags));
  try {
    open('orders', O_RDONLY);
    for (const name of ['messages', 'stdout', 'stderr']) open(name, O_WRONLY);
    writeSync(pipes[1], '{"type":"parked"}\n');
  } catch {
    for (const fd of pipes) closeSync(fd);
    return;
  }
  close();
  [channel, messages] = pipes;
  for (const [fd, name] of ['/dev/null', folder + '/stdout', folder + '/stderr'].entries()) {
    closeSync(fd);
    // A file is opened at the lowest free descriptor, unless another thread has taken that one.
    if (openSync(name, fd === 0 ? O_RDONLY : O_WRONLY) !== fd) exitNow(1);
  }
  closeSync(pipes[2]);
  closeSync(pipes[3]);
  send({ type: 'parked' });
}

// enter applies the environment and directory of a request, and returns a
// function that restores the environment.
function enter(request) {
  if (request.cwd) process.chdir(request.cwd);
  const before = map(keys(request.env || {}), (name) => [name, process.env[name]]);
  Object.assign(process.env, request.env);
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

// blocking makes a stream write synchronously, because Node.js does not flush pipes when a
// program exits.
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

// Suppress a warning that the driver causes, and not the program.
function suppressLoaderWarning() {
  const { emitWarning } = process;
  process.emitWarning = function (warning) {
    if (String(warning).includes('USE_MAIN_CONTEXT_DEFAULT_LOADER')) return;
    apply(emitWarning, process, arguments);
  };
}

const loader = vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;

// --- Programs ---

// program runs one program. It calls main if the request has arguments, or if
// main is defined and has not been entered when the program would end. The
// process exits as Node.js does; the end is the last message. An error that the
// program does not catch leaves this function, or raise, so that Node.js handles it.
function program(request) {
  process.removeListener('SIGINT', interrupt);
  const { File, MainTracker, bindFile, typeScriptHint } = require('./javascript_program.js');
  let returned, failure, uncaught, warning, artifactsDir, tracker, file;
  let unsettled; // the pending promise of the module or of main

  const note = (err) => {
    failure = describe(err);
    uncaught = failure.traceback + '\n';
    let hint = '';
    try {
      hint = typeScriptHint(err, file);
    } catch {} // any value can be thrown
    if (!hint) return;
    failure.message += '; ' + hint;
    uncaught += 'brig: ' + hint + '\n';
  };
  process.on('uncaughtExceptionMonitor', (err) => {
    note(err);
    if (process.listenerCount('uncaughtException') > 0 || process.hasUncaughtExceptionCaptureCallback()) uncaught = undefined;
  });
  onExit((pass) => (tracker ? tracker.emit(pass) : pass()), {
    // Node.js exits with code 13 if a module's promise is pending and can no longer settle.
    begin(drained) {
      if (!unsettled || !drained || process.exitCode !== undefined) return;
      process.exitCode = 13;
      note(`Warning: Detected unsettled ${unsettled}`);
      [uncaught, warning] = [undefined, uncaught];
    },
    end(code, early) {
      const late = code === 0 && tracker && tracker.takePending();
      try {
        if (late) late();
      } catch (err) {
        note(err);
        code = 1;
      }
      // Node.js would write these after the exit event, when the host no longer
      // reads.
      if (uncaught && !early) writeOut(2, uncaught);
      else if (warning && code === 13) writeOut(2, warning);
      let line = `{"type":"end","nonce":"${nonce}","code":${code}`;
      if (returned !== undefined) line += ',"returned":' + returned;
      if (failure && code !== 0) line += ',"failure":' + encode({ ...failure, traceback: failure.traceback.slice(-20000) });
      if (anyArtifacts()) line += ',"artifacts":true';
      removeIfEmpty(artifactsDir);
      // The host waits until the last process has closed the output. It handles the
      // message while this process closes its own.
      sendLine(line + ',"closed":true}');
      closeOutput(1);
      closeOutput(2);
      if (uncaught || warning) exitNow(code);
    },
  });

  // raise handles an error of a promise as Node.js does.
  function raise(err) {
    unsettled = undefined;
    if (!fatal(err, true)) exitNow(1);
  }

  const given = request.arguments !== undefined && request.arguments !== null;
  let source, name;

  // load runs the code, and calls then with its main function.
  function load(then) {
    const tail = "\n;return typeof main === 'function' ? main : undefined;";
    const params = ['exports', 'require', 'module', '__filename', '__dirname'];
    let body;
    try {
      body = vm.compileFunction(source + tail, params, { filename: 'main.js', importModuleDynamically: loader });
    } catch (err) {
      // A module can also use the names of the parameters for its own variables.
      const isModule = /import|export|await|import\.meta/.test(source) || /^Identifier '(?:exports|require|module|__filename|__dirname)' has already/.test(err.message);
      if (!(err instanceof SyntaxError) || !isModule) throw err;
      unsettled = 'top-level await';
      loadModule(err).then((main) => {
        unsettled = undefined;
        then(main);
      }).catch(raise);
      return;
    }
    const module = new Module('.', null);
    bindFile(file, module);
    name = file.named ? file.write() : file.path;
    module.path = path.dirname(name);
    module.paths = Module._nodeModulePaths(module.path);
    const require = createRequire(name);
    // The script is the main module, unless the driver calls its function main.
    if (!given) process.mainModule = require.main = module;
    const found = apply(body, module.exports, [module.exports, require, module, name, module.path]);
    const out = module.exports;
    module.loaded = true;
    then(typeof found === 'function' ? found : (typeof out === 'function' ? out : out && typeof out.main === 'function' ? out.main : undefined));
  }

  // The program is a module: it imports, exports or awaits at its top level.
  async function loadModule(cause) {
    const end = file.asModule("\n;export const __brig_main = typeof main === 'function' ? main : undefined;\n");
    bindFile(file, {});
    try {
      const m = await import(pathToFileURL(file.path).href);
      return m.__brig_main || (typeof m.default === 'function' ? m.default : undefined);
    } catch (err) {
      // If the code is not a valid module either, report the first error.
      if (err instanceof SyntaxError && !/\b(import|export|await)\b/.test(String(cause.message))) throw cause;
      throw err;
    } finally {
      end();
    }
  }

  // call calls main. A rejection of its promise stays unhandled, as if the program had called
  // main.
  function call(main, argument) {
    const value = main(argument);
    if (!value || typeof value.then !== 'function') return finish(value);
    unsettled = 'promise of main';
    (async () => {
      try {
        finish(await value);
      } finally {
        unsettled = undefined;
      }
    })();
  }

  function finish(value) {
    if (value === undefined) return;
    if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError('main returned a value that JSON cannot carry: ' + value);
    const json = stringify(value);
    if (json === undefined) throw new TypeError('main returned a value that JSON cannot carry: a ' + typeof value);
    returned = json;
  }

  enter(request);
  source = String(request.code || '').replace(/^\uFEFF/, '').replace(/^#!.*/, '');
  file = new File(String(request.code || ''), send);
  if (request.artifacts) artifactsDir = createDirectory('artifacts');
  if (!given && /main|exports|export/.test(source)) tracker = new MainTracker(source, tokensOf);
  load((main) => {
    if (!main) {
      if (given) throw new ReferenceError('arguments were given, but the program defines no function called main');
    } else if (tracker) {
      tracker.callWhenDue(main, () => call(main, {}));
    } else {
      call(main, given ? request.arguments : {});
    }
  });
}

function closeOutput(fd) {
  try {
    closeSync(fd);
  } catch {
    // the program has closed it
  }
}

// onExit calls exit.begin before all exit listeners; its argument is whether the program ends
// because the event loop is empty. It calls exit.end after the listeners, with the exit code and
// whether a listener ended the program. It calls idle with a function that calls the listeners of
// beforeExit.
function onExit(idle, exit) {
  const { emit, exit: leave, reallyExit } = process;
  const define = (name, value) => Object.defineProperty(process, name, { value, writable: true, configurable: true, enumerable: name !== 'emit' });
  let emitted = false;
  let ended = false;
  let drained = false;
  let called = false; // whether the program has called process.exit
  const end = (code, early) => {
    if (ended) return;
    ended = true;
    exit.end(Number(code) & 255, early);
  };
  define('emit', function (event, code) {
    if (event === 'beforeExit') {
      drained = true;
      return idle(() => apply(emit, this, arguments));
    }
    if (event !== 'exit' || emitted) return apply(emit, this, arguments);
    emitted = true;
    exit.begin(drained && !called);
    let any;
    try {
      any = apply(emit, this, arguments);
    } catch (err) {
      if (!fatal(err, false)) process.exitCode = 1; // Node.js does the same, but later
    }
    end(process.exitCode !== undefined ? process.exitCode : code);
    return any;
  });
  define('exit', function exit(code) {
    called = true;
    return apply(leave, this, arguments);
  });
  // process.exit calls reallyExit, even in an exit listener. In that case Node.js does not print
  // the program's error.
  define('reallyExit', function (code) {
    end(code || 0, true);
    return apply(reallyExit, process, arguments);
  });
}

// describe returns the fields of a failure, with limited lengths except for the
// traceback. A program can throw values that cannot be examined.
function describe(err) {
  const attempt = (f) => {
    try {
      return String(f());
    } catch {
      return undefined;
    }
  };
  const isError = attempt(() => hasStack(err)) === 'true';
  const message = attempt(() => (isError ? err.message : traceOf(err))) || '';
  return {
    name: (isError && attempt(() => err.name)) || 'Error',
    message: message.slice(0, 4000),
    traceback: attempt(() => traceOf(err)) || attempt(() => (isError ? err : message)) || 'an error that cannot be shown',
  };
}

function hasStack(err) {
  return err instanceof Error || (err !== null && typeof err === 'object' && typeof err.stack === 'string');
}

// traceOf returns an uncaught value as Node.js shows it: an error with its whole
// stack, cause and members. The driver's frames are left out.
function traceOf(err) {
  if (err === null || (typeof err !== 'object' && typeof err !== 'function')) return String(err);
  let text = '';
  for (const line of require('util').inspect(err, { customInspect: false, depth: 5 }).split('\n')) {
    // The brace of the members follows the last frame.
    if (line.includes(driverPrefix)) text += line.endsWith(' {') ? ' {' : '';
    else text += '\n' + line;
  }
  return text.slice(1);
}

function anyArtifacts() {
  try {
    return readdirSync(artifacts).length > 0;
  } catch {
    return false;
  }
}

// createDirectory creates a directory that programs expect. It returns the path to
// remove if nothing was written there.
function createDirectory(name) {
  try {
    mkdirSync(name);
    return path.resolve(name);
  } catch {
    return undefined; // it exists, or this user may not create it
  }
}

function removeIfEmpty(folder) {
  try {
    if (folder) rmdirSync(folder);
  } catch {
    // the directory is not empty
  }
}

// writeOut writes a complete text to a descriptor, unless the read side is closed.
function writeOut(fd, text) {
  let data = toBuffer(text);
  while (data.length > 0) {
    try {
      data = apply(subarray, data, [writeSync(fd, data)]);
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

let util, inspect, promiseHooks, session, receiverId, evalScript;
let count = 0;
let running = null; // the running cell
let received;

function interrupt() {
  if (running) running.reject(new KeyboardInterrupt());
}

// cells executes requests until the channel ends. It begins with the given requests, which have
// already been received.
function cells(requests) {
  util = require('util');
  inspect = util.inspect;
  promiseHooks = require('v8').promiseHooks;
  const inspector = require('inspector');
  session = new inspector.Session();
  session.connect();
  noInput();
  receiverId = register((value) => {
    received = value;
  });
  prepareGlobals();

  const { Socket } = require('net');
  requestLater = (more) => requests.push(...more);
  let socket;
  let busy = false;
  const advance = () => {
    if (busy || requests.length === 0) return;
    const request = begin(shift(requests));
    if (request.op === 'cell') {
      busy = true;
      cell(request).then(() => {
        busy = false;
        advance();
      });
      return;
    }
    if (request.op === 'program') {
      socket.removeAllListeners();
      socket.unref();
      Object.assign(process, { exit, kill });
      Error.prepareStackTrace = undefined;
      process.removeListener('uncaughtException', report);
      process.removeListener('unhandledRejection', report);
      program(request);
      return;
    }
    if (request.op === 'park') {
      const before = channel;
      park(request.cwd, () => socket.removeAllListeners().destroy());
      if (channel !== before) listen();
    } else {
      handleControl(request);
    }
    advance();
  };
  const listen = () => {
    socket = new Socket({ fd: channel, readable: true, writable: channel === messages });
    socket.on('data', (chunk) => {
      push(requests, ...parseRequests(chunk));
      advance();
    });
    socket.on('error', () => exitNow(0));
    socket.on('close', () => exitNow(0));
  };
  listen();
  advance();
}

// noInput replaces standard input with an empty one, for cells and their child processes, because
// the host never closes its end.
function noInput() {
  try {
    fs.closeSync(0);
    fs.openSync('/dev/null'); // it gets the lowest free descriptor
  } catch {
    // Descriptor 0 was closed.
  }
}

// post sends a message to the inspector. Node.js would serialize it with a toJSON method that a
// cell has defined for all objects. So toJSON is hidden during the call or, if the message runs
// code, until the message has been serialized.
function post(method, params, callback, runsCode) {
  const given = getOwnPropertyDescriptor(prototype, 'toJSON');
  if (!given || !given.configurable) return session.post(method, params, callback);
  const restore = () => defineProperty(prototype, 'toJSON', given);
  defineProperty(prototype, 'toJSON', { get: runsCode && (() => void restore()), configurable: true });
  session.post(method, { __proto__: null, ...params }, callback);
  if (!runsCode) restore();
}

// register makes a value known to the inspector, and returns its object ID.
function register(value) {
  globalThis.__brig = value;
  let id;
  session.post('Runtime.evaluate', { expression: '__brig' }, (err, answer) => {
    id = answer.result.objectId;
  });
  delete globalThis.__brig;
  return id;
}

// remoteValue returns the value of a remote object of the inspector.
function remoteValue(remote) {
  if (remote.objectId) {
    received = undefined;
    post('Runtime.callFunctionOn', { objectId: receiverId, functionDeclaration: 'function (v) { this(v); }', arguments: [{ objectId: remote.objectId }] });
    const value = received;
    received = undefined;
    return value;
  }
  const special = remote.unserializableValue;
  if (special === undefined) return remote.type === 'undefined' ? undefined : remote.value;
  return special.endsWith('n') ? BigInt(special.slice(0, -1)) : Number(special);
}

const { exit, kill } = process;

function prepareGlobals() {
  // With an inspector session, the global console keeps its arguments in memory. A separate
  // console does not.
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
  // While code runs, the driver's listener is removed. Before Node.js sends a signal that has no
  // listener, it prepares its exit, which would end the session.
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
  // Paths are resolved against the working directory when they are used.
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

// inDir caches the result of f for a file in the working directory until the
// directory changes.
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

// report sends an error that does not belong to a cell.
function report(err) {
  if (err instanceof SystemExit || err instanceof KeyboardInterrupt) return;
  writeOut(2, 'Uncaught ' + explain(err).traceback + '\n');
}

// cell runs one cell and reports its end. It never rejects.
async function cell(request) {
  const name = `cell-${++count}.js`;
  send({ type: 'started', count });
  let restore = () => {};
  const state = { waits: [], result: undefined, reject: undefined };
  try {
    // Code that removed the driver's listener requested the signal's default action, which a cell
    // may not choose.
    if (!includes(process.listeners('SIGINT'), interrupt)) process.on('SIGINT', interrupt);
    restore = enter(request);
    const { value } = await evaluate(String(request.code || ''), name, state);
    while (state.waits.length > 0) await state.race(Promise.all(splice(state.waits, 0)));
    const data = state.result || (value === undefined ? undefined : await state.race(bundle(value)));
    await nextTurn();
    if (data) send({ type: 'result', data });
  } catch (err) {
    await nextTurn();
    send({ type: 'error', ...explain(err, name) });
  }
  running = null;
  restore();
  post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  send({ type: 'end' });
}

// nextTurn waits until the event loop has handled the events of a cell, such as
// an unhandled rejection.
function nextTurn() {
  return new Promise((resolve) => later(resolve));
}

// evaluate resolves with the last value of a cell, wrapped in an object.
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
      if (running !== state) return; // the cell was interrupted and has ended
      if (err) return later(() => reject(err)); // the error may be due to an interrupt
      const value = remoteValue(answer.exceptionDetails ? answer.exceptionDetails.exception || answer.result : answer.result);
      if (answer.exceptionDetails) awaitInterrupt(value);
      if (answer.exceptionDetails) return reject(withPosition(value, answer.exceptionDetails, source));
      if (!util.types.isPromise(value)) return resolve({ value });
      apply(then, value, [(value) => resolve({ value }), reject]);
    };
  });
  ended.catch(() => {}); // the promise may be rejected before a handler is attached
  const request = { expression: source.code + '\n//# sourceURL=' + name, replMode: true, objectGroup: 'cell' };
  globalThis.__brig = () => {
    delete globalThis.__brig;
    const stop = promiseHooks.onInit((promise) => {
      stop();
      unsettled.add((state.promise = promise));
    });
    post('Runtime.evaluate', request, state.answered, true);
    stop();
    // This makes the code after an already resolved await interruptible, too.
    if (typeof process._tickCallback === 'function') process._tickCallback();
  };
  evalScript = evalScript || new vm.Script('__brig()', { filename: boundary });
  try {
    handlesInterrupts = true;
    evalScript.runInThisContext({ breakOnSigint: true, displayErrors: false });
  } catch (err) {
    state.reject(err && err.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? new KeyboardInterrupt() : err);
  } finally {
    handlesInterrupts = false;
  }
  return ended;
}

// awaitInterrupt waits briefly if SIGINT ended a child process of the cell.
// This process receives the same signal, perhaps late, and it would interrupt
// the next cell. The signal ends the wait.
function awaitInterrupt(err) {
  if (util.types.isNativeError(err) && err.signal === 'SIGINT') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
}

// The promises of running cells. If V8 collected one, the inspector would
// report it during the collection, and Node.js would abort.
const unsettled = new Set();

// The positions of the syntax errors of cells; undefined for those of modules,
// whose errors have a position.
const positions = new WeakMap();

// withPosition records the position of a syntax error in a cell, which the error
// does not have.
function withPosition(err, details, source) {
  if (err instanceof SyntaxError && !positions.has(err) && !/\n +at /.test(String(err.stack))) {
    const lines = source.original.split('\n');
    let { lineNumber: line, columnNumber: column } = details;
    if (line === 0) column -= source.shift;
    // Move an error at the end before the line that the driver added.
    if (line >= lines.length) [line, column] = [lines.length - 1, lines[lines.length - 1].length];
    positions.set(err, { line, column, text: lines[line] });
  }
  return err;
}

// explain returns the fields of an error message for any thrown value.
function explain(err, name) {
  try {
    const isError = util.types.isNativeError(err) || err instanceof Error;
    if (!isError) {
      const text = typeof err === 'string' ? err : inspect(err);
      return { name: 'Error', value: text, traceback: 'Uncaught ' + inspect(err) };
    }
    let trace = String(err.stack);
    const place = positions.get(err);
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

// boundary is the name of the script between the driver's frames and those of a
// cell.
const boundary = 'brig:cell';

// frames returns the lines of a stack without the driver's.
function frames(lines, fileOf) {
  const end = findIndex(lines, (l) => /^(?:brig:cell|node:inspector)$/.test(fileOf(l)));
  return filter(end < 0 ? lines : splice(lines, 0, end), (l) => fileOf(l) !== __filename && fileOf(l) !== 'node:internal/process/task_queues');
}

// stackOf returns a stack in the format of V8 and Node.js, without the
// driver's frames.
function stackOf(err, sites) {
  let head;
  try {
    head = typeof err.code === 'string' && err.code.startsWith('ERR_') && err.name ? `${err.name} [${err.code}]: ${err.message}` : Error.prototype.toString.call(err);
  } catch {
    head = '<error>';
  }
  return join([head, ...frames(sites, (site) => String(site.getFileName()))], '\n    at ');
}

// Marks the end of a TypeScript cell, whose imports may refer only to types.
const typesErased = '\n// types erased';

// scriptOf converts a cell to a script.
function scriptOf(original) {
  let code = original.replace(/^\uFEFF/, '').replace(/^#!.*/, '');
  const typed = code.endsWith(typesErased);
  if (typed) code = code.slice(0, -typesErased.length);
  if (/\b(import|export)\b/.test(code)) {
    try {
      code = rewrite(code, typed);
    } catch {
      // V8 reports the error.
    }
  }
  // {a: 1} is an object, unless it is valid only as a block.
  if (/^\s*\{/.test(code) && /\}\s*$/.test(code)) {
    try {
      new vm.Script('async () => (' + code + '\n)');
      return { code: '(' + code + '\n)', original, shift: 1 };
    } catch {
      // It is a block.
    }
  }
  return { code, original, shift: 0 };
}

// --- Values ---

const methods = [
  ['_toHtml', 'text/html'], ['toHTML', 'text/html'], ['_toMarkdown', 'text/markdown'], ['_toSvg', 'image/svg+xml'], ['toSVG', 'image/svg+xml'],
  ['_toPng', 'image/png'], ['_toJpeg', 'image/jpeg'], ['_toLatex', 'text/latex'],
];

// bundle returns a value's MIME bundle.
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

// plain reports whether a value is a plain object or an array.
function plain(value) {
  if (value === null || typeof value !== 'object') return false;
  if (Array.isArray(value)) return true;
  const proto = Object.getPrototypeOf(value);
  return proto === null || proto === Object.prototype;
}

// jsonOf returns the JSON of a value, or undefined.
function jsonOf(value) {
  try {
    const json = stringify(value);
    return json === undefined || json.length > maxJSON ? undefined : new RawJSON(json);
  } catch {
    return undefined;
  }
}

// encoded converts each representation to its form in messages.
function encoded(forms) {
  const data = {};
  for (const [type, form] of Object.entries(forms)) {
    if (form === undefined || form === null || type.length > maxName) continue;
    if (keys(data).length >= maxForms) break;
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

// display shows a value, or the value of a promise, while a cell runs.
function display(value) {
  show(Promise.resolve(value).then(bundle), bundleNow(value));
}

// bundleNow returns the bundle of a value without waiting, so that its
// position in the output is correct.
function bundleNow(value) {
  if (util.types.isPromise(value)) return undefined;
  if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return { 'text/plain': inspect(value) };
  if (value[Symbol.for('Jupyter.display')] || value._toMime || some(methods, ([m]) => value[m])) return undefined;
  const json = plain(value) ? jsonOf(value) : undefined;
  return { 'text/plain': inspect(value), ...(json === undefined ? {} : { 'application/json': json }) };
}

function show(promise, now) {
  const cell = running;
  const out = (data) => {
    if (running === cell && cell) sendDisplay(data);
  };
  if (now) return out(now);
  const shown = promise.then(out);
  if (cell) push(cell.waits, shown);
  shown.catch(() => {});
}

const mimeTypes = {
  text: 'text/plain', html: 'text/html', markdown: 'text/markdown', svg: 'image/svg+xml', png: 'image/png', jpeg: 'image/jpeg',
  pdf: 'application/pdf', json: 'application/json', latex: 'text/latex', javascript: 'application/javascript',
};
for (const [name, type] of Object.entries(mimeTypes)) {
  display[name] = (form) => show(undefined, encoded({ [type]: form }));
}
display.mime = (forms) => show(undefined, encoded(forms));

// classic is $$ as in IJavascript: the cell's result is in its MIME bundle.
const classic = { display };
for (const [name, type] of Object.entries(mimeTypes)) {
  classic[name] = (form) => classic.mime({ [type]: form });
}
classic.mime = (forms) => {
  if (!running) return;
  if (running.result) sendDisplay(running.result);
  running.result = encoded(forms);
};
classic.async = () => {
  const cell = running;
  if (!cell) return;
  push(cell.waits, new Promise((resolve, reject) => {
    classic.done = (value) => {
      if (value !== undefined && running === cell) push(cell.waits, bundle(value).then((data) => { cell.result = data; }));
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

// A script in the working directory, so that import() resolves there.
const dirImport = inDir((file) =>
  new vm.Script('(name, options) => options ? import(name, options) : import(name)', { filename: file, importModuleDynamically: loader }).runInThisContext());

// importFrom implements import() in a cell. A statement also passes the names
// that it needs.
function importFrom(name, options, needed) {
  return imported(name, options, needed).catch((err) => {
    if (err instanceof SyntaxError) positions.set(err, undefined);
    throw err;
  });
}

async function imported(name, options, needed) {
  let module;
  if (loader) {
    module = await dirImport()(name, options);
  } else {
    // Older versions resolve from this file, so they need the directory.
    let target = String(name);
    if (/^\.{0,2}\//.test(target)) {
      target = pathToFileURL(path.resolve(target)).href;
    } else if (!/^[a-z]+:/.test(target) && !isBuiltin(target)) {
      try {
        target = pathToFileURL(createRequire(path.join(process.cwd(), 'cell.js')).resolve(target)).href;
      } catch {
        // The original name gives a better error message.
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

// Words that can precede a regular expression.
const operators = /^(?:return|typeof|case|in|of|delete|void|instanceof|new|throw|yield|await|do|else)$/;

// tokensOf splits code into tokens, as far as needed to distinguish words from
// the content of strings, templates, comments and regular expressions. Each
// token has its bracket depth.
function tokensOf(code) {
  const tokens = [];
  const open = []; // the open brackets
  let at = 0;
  let value = false; // whether the previous token ended a value, so that a slash divides it
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

// rewrite converts syntax that only modules may use to syntax of scripts:
// import statements, import(), import.meta and export. Lines keep their
// numbers.
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
      // A method can have this name.
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

// sourceOf reads the module name of a statement from token i: a string and
// optional attributes. It returns the arguments of an import() and the index
// of the last token.
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
  let names = null; // pairs of names in braces
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

// exportStatement turns an exported declaration of a cell into an ordinary declaration.
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

suppressLoaderWarning();
blocking('stdout');
blocking('stderr');
process.on('SIGINT', interrupt);
send({ type: 'ready', version: process.versions.node, flavor: 'node', nonces: true });
wait();
