(() => {
  // Runs one program and prints how it ended, after a mark.
  const fs = require('fs');
  const path = require('path');
  const vm = require('vm');
  const { createRequire } = require('module');
  const order = JSON.parse(Buffer.from('BRIG_ORDER', 'base64').toString());
  const given = order.arguments !== null;
  const source = order.source.replace(/^\uFEFF/, '').replace(/^#!.*/, '');
  const name = path.join(process.cwd(), 'main.js');
  const end = { code: 0, dir: path.join(process.cwd(), 'artifacts'), artifacts: [] };
  const { exit } = process;
  if (order.artifacts) {
    try {
      fs.mkdirSync(end.dir); // programs expect it
    } catch {
      // it exists, or this user may not create it
    }
  }

  // Redirect the output to files: kernels change the data that a program
  // writes to the streams, and files can be read after the program has ended.
  const { Console } = require('console');
  const { Writable } = require('stream');
  const streams = ['stdout', 'stderr'].map((name) => {
    const file = order.kept + (name === 'stdout' ? '-out' : '-err');
    const fd = fs.openSync(file, 'w+', 0o600);
    const keep = (chunk, encoding) => fs.writeSync(fd, typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : chunk);
    const sink = new Writable({ decodeStrings: false, write(chunk, encoding, done) { keep(chunk, encoding); done(); } });
    const before = process[name].write;
    process[name].write = (chunk, encoding, done) => {
      keep(chunk, encoding);
      const call = typeof encoding === 'function' ? encoding : done;
      if (call) process.nextTick(call);
      return true;
    };
    return { name, file, fd, sink, before };
  });
  const consoleBefore = globalThis.console;
  globalThis.console = new Console({ stdout: streams[0].sink, stderr: streams[1].sink });

  function close() {
    globalThis.console = consoleBefore;
    for (const s of streams) {
      process[s.name].write = s.before;
      const total = fs.fstatSync(s.fd).size;
      const part = (from, n) => {
        const b = Buffer.alloc(n);
        return b.subarray(0, fs.readSync(s.fd, b, 0, n, from)).toString('base64');
      };
      const { limit } = order;
      const head = total <= limit ? total : limit - Math.floor(limit / 2);
      const tail = Math.min(total - head, Math.floor(limit / 2));
      end[s.name] = [part(0, head), part(total - tail, tail), total];
      fs.closeSync(s.fd);
      fs.rmSync(s.file, { force: true });
    }
  }

  class Exit extends Error {}
  process.exit = (code) => {
    end.code = Number(code === undefined ? process.exitCode || 0 : code) & 255;
    throw new Exit();
  };

  function fail(err) {
    if (err instanceof Exit) return;
    const isError = err instanceof Error || (err && typeof err.stack === 'string');
    const lines = isError ? String(err.stack).split('\n') : [String(err)];
    const traceback = lines.filter((l) => !/^\s+at /.test(l) || l.includes('main.js')).join('\n');
    process.stderr.write(traceback + '\n');
    end.code = 1;
    end.Error = { name: String((isError && err.name) || 'Error'), message: String(isError ? err.message : err).slice(0, 4000), traceback: traceback.slice(-20000) };
  }

  function keep(value) {
    if (value === undefined) return;
    if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError('main returned a value that JSON cannot carry: ' + value);
    if (JSON.stringify(value) === undefined) throw new TypeError('main returned a value that JSON cannot carry: a ' + typeof value);
    end.value = value;
  }

  function list(folder) {
    let entries = [];
    try {
      entries = fs.readdirSync(folder, { withFileTypes: true });
    } catch {
      return;
    }
    for (const e of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const file = path.join(folder, e.name);
      if (e.isDirectory()) list(file);
      else if (e.isFile() && order.extensions.includes(path.extname(e.name).toLowerCase())) end.artifacts.push(path.relative(end.dir, file));
    }
  }

  function finish() {
    process.exit = exit;
    close();
    list(end.dir);
    const text = Buffer.from(JSON.stringify(end));
    // A longer text may not arrive in one piece.
    if (text.length < 16384) process.stdout.write(order.mark + ':' + text.toString('base64') + ';');
    else fs.writeFileSync(order.kept + '-end', text, { mode: 0o600 });
  }

  function callsMain() {
    const uses = source.match(/(^|[^.\w$])main\s*\(/g) || [];
    const definitions = source.match(/\bfunction\s*\*?\s*main\s*\(/g) || [];
    return uses.length > definitions.length;
  }

  let value;
  try {
    const module = { exports: {}, filename: name, children: [], loaded: false };
    const params = ['exports', 'require', 'module', '__filename', '__dirname'];
    const body = vm.compileFunction(source + "\n;return typeof main === 'function' ? main : undefined;", params, { filename: 'main.js' });
    const require = createRequire(name);
    if (!given) require.main = module;
    const found = body(module.exports, require, module, name, path.dirname(name));
    const out = module.exports;
    const main = found || (typeof out === 'function' ? out : out && typeof out.main === 'function' ? out.main : undefined);
    if (!main && given) throw new ReferenceError('arguments were given, but the program defines no function called main');
    if (main && (given || !callsMain())) value = main(given ? order.arguments : {});
    if (!value || typeof value.then !== 'function') keep(value);
  } catch (err) {
    fail(err);
  }
  if (value && typeof value.then === 'function') return value.then(keep).catch(fail).then(finish);
  finish();
})();
