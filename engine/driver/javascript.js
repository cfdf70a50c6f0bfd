// Runs one program: /tmp/.brig/main.js, with main(arguments) called when
// arguments were given, or when main is defined and the program does not call
// it itself. The value goes to descriptor 3 as JSON, apart from the output.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const { createRequire } = require('module');
const { pathToFileURL } = require('url');

const base = process.argv[2];
const source = fs.readFileSync(path.join(base, 'main.js'), 'utf8').replace(/^\uFEFF/, '').replace(/^#!.*/, '');
const given = fs.existsSync(path.join(base, 'arguments.json'));
const args = given ? JSON.parse(fs.readFileSync(path.join(base, 'arguments.json'), 'utf8')) : undefined;
const name = path.join(process.cwd(), 'main.js');
process.argv.splice(1, 2, name);

function send(answer) {
  let data = Buffer.from(JSON.stringify(answer));
  while (data.length > 0) data = data.subarray(fs.writeSync(3, data));
}

function fail(err) {
  const isError = err instanceof Error || (err && typeof err.stack === 'string');
  const trace = isError ? String(err.stack).split('\n').filter((l) => !l.includes(__filename)).join('\n') : String(err);
  fs.writeSync(2, trace + '\n');
  send({ error: { name: (isError && err.name) || 'Error', message: String(isError ? err.message : err).slice(0, 4000), traceback: trace.slice(-20000) } });
  process.exitCode = 1;
}

// A program that is a module: it imports, exports or awaits at its top level.
async function load() {
  const tail = "\n;return typeof main === 'function' ? main : undefined;";
  const module = { exports: {}, filename: name, children: [], loaded: false };
  const params = ['exports', 'require', 'module', '__filename', '__dirname'];
  let body;
  try {
    body = vm.compileFunction(source + tail, params, {
      filename: 'main.js',
      importModuleDynamically: vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    });
  } catch (err) {
    if (!(err instanceof SyntaxError) || !/import|export|await|import\.meta/.test(source)) throw err;
    return loadModule(err);
  }
  const found = body(module.exports, createRequire(name), module, name, path.dirname(name));
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
  const main = await load();
  if (!main) {
    if (given) throw new ReferenceError('arguments were given, but the program defines no function called main');
    return;
  }
  if (!given && callsMain()) return;
  const value = await main(given ? args : {});
  if (value === undefined) return;
  if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError('main returned a value that JSON cannot carry: ' + value);
  const json = JSON.stringify(value);
  if (json === undefined) throw new TypeError('main returned a value that JSON cannot carry: a ' + typeof value);
  send({ value });
})().catch(fail);
