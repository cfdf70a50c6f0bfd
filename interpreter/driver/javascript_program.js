// The file of a program, and the call of its main function. The driver loads this
// module with the first program, or earlier.
'use strict';
const fs = require('fs');
const path = require('path');
const v8 = require('v8');
const { Session } = require('inspector');
const diagnostics = require('diagnostics_channel');

// References of the driver, as in javascript.js.
const { openSync, closeSync, writeFileSync, readFileSync, rmSync, mkdirSync, readdirSync, symlinkSync, existsSync } = fs;
const { setFlagsFromString } = v8;
const { apply } = Reflect;
const { toString } = Function.prototype;
const { some, filter } = Array.prototype;
const Func = Function;
const activeResources = process.getActiveResourcesInfo ? process.getActiveResourcesInfo.bind(process) : () => [];

// --- The file ---

// A program with this text can name its own file. Other code gets the name from
// process.argv or from the module, which are watched.
const naming = /__filename|import\.meta|argv|\bmain\.[cm]?[jt]s\b|mainModule/;

// File is the file of a program, main.js in the directory in which the program started. Most
// programs never use it, so it is written only when code reads its name.
class File {
  constructor(source, send) {
    this.source = source;
    this.send = send;
    this.folder = process.cwd();
    this.path = path.join(this.folder, 'main.js');
    this.written = false;
    this.isModule = false;
    this.named = naming.test(source);
  }

  // write writes the file once, and returns its path. Another file is never
  // replaced.
  write() {
    if (this.written) return this.path;
    this.written = true;
    this.place(this.isModule ? '.mjs' : this.isCommonJS() ? '.js' : '.cjs', this.source);
    return this.path;
  }

  // asModule writes the file as a module with a tail, and returns a function to call when the
  // module has been loaded. When the evaluation begins, the file is replaced with the original
  // source if the program can name it, and removed otherwise. So a program that exits during its
  // evaluation leaves no file with the tail.
  asModule(tail) {
    const event = `brig-module-${process.pid}`;
    const text = this.source + tail.trimEnd() + `import "data:text/javascript,process.emit('${event}')";\n`;
    this.written = this.isModule = true;
    if (!this.place('.mjs', text)) throw new Error(`the program is a module, and ${this.folder} has no place for its file`);
    const { path: file, source } = this;
    const restore = () => {
      if (!hasContent(file, text)) return; // the program has changed it
      if (this.named) writeFileSync(file, source);
      else rmSync(file, { force: true });
      this.written = this.named;
    };
    process.once(event, restore);
    return () => {
      process.removeListener(event, restore);
      restore();
    };
  }

  isCommonJS() {
    try {
      return JSON.parse(readFileSync(path.join(this.folder, 'package.json'), 'utf8')).type !== 'module';
    } catch {
      return true;
    }
  }

  // place creates the file under an unused name, unless a file with this content already exists.
  // It returns whether the file exists now.
  place(extension, text) {
    for (const folder of [this.folder, `/tmp/.brig-program-${process.pid}`]) {
      try {
        if (folder !== this.folder) linkAll(this.folder, folder);
        for (let n = 0; n < 10; n++) {
          const file = path.join(folder, 'main' + (n ? '-' + n : '') + extension);
          const created = create(file, text);
          if (!created && !hasContent(file, text)) continue;
          this.path = file;
          if (argv) argv[1] = file;
          // A workspace must not keep the file.
          if (created) this.send({ type: 'file', path: file });
          return true;
        }
      } catch {
        // This user may not write here, or the disk is full.
      }
    }
    return false;
  }
}

// linkAll makes a directory with the files of another one, which this user may
// not write to. Programs look for files beside their own.
function linkAll(from, to) {
  mkdirSync(to, { mode: 0o700 });
  for (const name of readdirSync(from)) symlinkSync(path.join(from, name), path.join(to, name));
}

// create creates a file, and returns false if the path exists.
function create(file, text) {
  let fd;
  try {
    fd = openSync(file, 'wx', 0o644);
  } catch (err) {
    if (err.code === 'EEXIST') return false;
    throw err;
  }
  try {
    writeFileSync(fd, text);
  } catch (err) {
    rmSync(file, { force: true });
    throw err;
  } finally {
    closeSync(fd);
  }
  return true;
}

// hasContent reports whether a file has this content, because the program may be a
// file of the workspace.
function hasContent(file, text) {
  try {
    return readFileSync(file, 'utf8') === text;
  } catch {
    return false;
  }
}

let argv;

// bindFile gives a program its arguments and its module, which write the file when
// the program's path is read.
function bindFile(file, module) {
  argv = process.argv;
  argv.splice(1, argv.length - 1, file.path);
  const value = (get, set) => ({ get, set, enumerable: true, configurable: true });
  Object.defineProperty(process, 'argv', value(() => {
    file.write();
    return argv;
  }, (v) => {
    argv = v;
  }));
  let name;
  const filename = value(() => name || file.write(), (v) => {
    name = v;
  });
  Object.defineProperties(module, { filename, id: { value: '.', writable: true, enumerable: true, configurable: true } });
}

// --- TypeScript ---

// typeScriptHint explains an error that arose because the program imports a TypeScript file. Brig
// compiles only the program itself. It returns '' for other errors.
function typeScriptHint(err, { source, folder }) {
  const message = String(err.message);
  let found;
  if (err.code === 'ERR_UNKNOWN_FILE_EXTENSION') {
    found = /^Unknown file extension "\.[cm]?tsx?" for (\/.*)$/.exec(message);
  } else if (err.code === 'ERR_MODULE_NOT_FOUND' || err.code === 'MODULE_NOT_FOUND' || err.code === 'ERR_UNSUPPORTED_DIR_IMPORT') {
    const [, name] = /^(?:Cannot find module|Directory import) '([./][^']*)'/.exec(message) || [];
    const from = err.requireStack && err.requireStack[0] ? path.dirname(err.requireStack[0]) : folder;
    const stem = name && path.resolve(from, name).replace(/\.[cm]?jsx?$/, '');
    for (const end of stem ? ['.ts', '.tsx', '.mts', '.cts', '/index.ts'] : []) {
      if (existsSync(stem + end)) found = found || ['', stem + end];
    }
  } else if (err.name === 'SyntaxError') {
    const [, name] = /\brequire\(\s*['"`](\.[^'"`]*\.[cm]?tsx?)['"`]/.exec(source) || [];
    if (name && existsSync(path.resolve(folder, name))) found = ['', path.resolve(folder, name)];
  }
  return found ? `${path.relative(folder, found[1])} is TypeScript, and only the program itself is compiled; upload JavaScript, ` +
    'put the code into the program, or import the file with its extension in an image with Node.js 22.18 or later' : '';
}

// --- The call of main ---

// MainTracker observes whether a program has entered its main function.
class MainTracker {
  constructor(source, tokensOf) {
    this.source = source;
    this.tokensOf = tokensOf;
    this.elsewhere = false; // whether the program has started threads or processes
    const note = () => {
      this.elsewhere = true;
    };
    diagnostics.channel('child_process').subscribe(note);
    process.once('worker', note);
  }

  // callWhenDue arranges for f to be called if the program has not entered main before its end.
  // If no other code can call main, it calls f immediately.
  callWhenDue(main, f) {
    this.main = main;
    if (this.entered()) return;
    if (!this.refersToMain()) {
      f();
      return;
    }
    this.waiting = f;
    if (isCompiled(main) === undefined) return;
    // V8 forgets functions that have not run for a long time.
    const timer = setInterval(() => this.entered() && clearInterval(timer), 20);
    timer.unref();
  }

  // takePending returns the function that calls main at the end, if main must still be called. It
  // returns the function only once.
  takePending() {
    const f = this.waiting;
    this.waiting = undefined;
    return f && !this.entered() && !this.elsewhere && !childrenEnded() ? f : undefined;
  }

  // emit passes on the event beforeExit. If the program has no work left, it calls main.
  emit(pass) {
    const before = activeResources().length;
    const any = pass();
    if (!this.waiting || activeResources().length > before || this.inExit()) return any;
    const f = this.takePending();
    if (f) f();
    return any;
  }

  // inExit reports whether a listener of the event exit may call main.
  inExit() {
    return apply(some, process.listeners('exit'), [(l) => l === this.main || /\bmain\b/.test(apply(toString, l, []))]);
  }

  entered() {
    return this.hasEntered || (this.hasEntered = entered(this.main, this.source));
  }

  // refersToMain reports whether code other than the definition of main can refer
  // to it. False positives are possible.
  refersToMain() {
    const { main, source } = this;
    let tokens;
    try {
      tokens = this.tokensOf(source);
    } catch {
      return true;
    }
    if (main.name !== 'main') return main.name !== '' || apply(filter, tokens, [(t) => t.text === 'exports']).length > 1;
    if (/`[^`]*\bmain\b/.test(source)) return true;
    const at = (i) => (tokens[i] ? tokens[i].text : '');
    let exported = -1; // the depth of the braces with the names of exports
    return apply(some, tokens, [(t, i) => {
      if (t.text === '{' && (at(i - 1) === 'export' || (at(i - 1) === '=' && at(i - 2) === 'exports'))) exported = t.depth;
      if (t.text === '}' && t.depth <= exported + 1) exported = -1;
      if (t.kind === 'string') return /\bmain\b/.test(t.text);
      if (t.text !== 'main') return false;
      const before = at(i - 1);
      if (/^(?:function|const|let|var)$/.test(before) || (before === '*' && at(i - 2) === 'function')) return false;
      if (before === '.' && at(i - 2) === 'exports' && at(i + 1) === '=') return false;
      if (exported >= 0 && /^[,}:]$|^as$/.test(at(i + 1))) return false;
      const value = /^[;]?$/.test(at(i + 1)) || source.slice(t.end, tokens[i + 1] && tokens[i + 1].start).includes('\n');
      if (value && before === '=' && (at(i - 2) === 'exports' || at(i - 3) === 'exports')) return false;
      return !(value && before === 'default' && at(i - 2) === 'export');
    }]);
  }
}

// entered reports whether a function has been called. V8 compiles a function
// when it is called first, except some in parentheses; for those its coverage
// counts the calls. It returns undefined for a function without a source.
function entered(f, source) {
  const text = apply(toString, f, []);
  if (text.endsWith('{ [native code] }')) return undefined;
  const compiled = isCompiled(f);
  if (compiled === false) return false;
  const at = source.indexOf(text);
  const eager = at > 0 && /[(!]\s*$/.test(source.slice(0, at));
  return compiled && !eager ? true : isCovered(text, source);
}

// isCompiled returns undefined if V8 does not report the status. It determines the status bit by
// comparison, because the bit differs between versions. V8 aborts the process for a function
// without a source.
function isCompiled(f) {
  try {
    setFlagsFromString('--allow-natives-syntax');
    const status = new Func('f', 'return %GetOptimizationStatus(f)');
    const run = () => 1;
    run();
    const lazy = status(() => 1) & ~status(run);
    return lazy === 0 ? undefined : (status(f) & lazy) === 0;
  } catch {
    return undefined;
  } finally {
    setFlagsFromString('--no-allow-natives-syntax');
  }
}

function isCovered(text, source) {
  const session = new Session();
  session.connect();
  let count = 0;
  session.post('Profiler.enable');
  session.post('Profiler.getBestEffortCoverage', (err, coverage) => {
    for (const script of err ? [] : coverage.result) {
      if (!/(^|\/)main[-\d]*\.[cm]?js$/.test(script.url)) continue;
      for (const { ranges: [r] } of script.functions) {
        if (r.endOffset - r.startOffset === text.length && source.slice(r.startOffset, r.endOffset) === text) count += r.count;
      }
    }
  });
  session.disconnect();
  return count > 0;
}

// childrenEnded reports whether child processes have used CPU time.
function childrenEnded() {
  try {
    const fields = readFileSync('/proc/self/stat', 'latin1').split(') ').pop().split(' ');
    return Number(fields[13]) + Number(fields[14]) > 0;
  } catch {
    return false;
  }
}

module.exports = { File, MainTracker, bindFile, typeScriptHint };
