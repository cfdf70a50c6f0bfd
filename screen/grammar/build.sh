#!/bin/sh
# Builds parser.wasm.gz from tree-sitter's runtime and grammars, as published on npm.
# It needs clang-14, lld-14, wasi-libc and libclang-rt-14-dev-wasm32 (Debian).
# The build is reproducible: parser.sum has the digest of the result.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fetch() { # package version sha256
	npm pack --silent "$1@$2" >/dev/null
	echo "$3  $1-$2.tgz" | sha256sum --check --quiet
	mkdir "$1"
	tar -xzf "$1-$2.tgz" -C "$1" --strip-components=1
}
fetch tree-sitter 0.25.1 07aeba8dd71630e7e72b2d4ca3bd2680c3471824100cc5ebff44e78a6ed0b6d3
fetch tree-sitter-python 0.25.0 63b76b3fa8181fd79eaad4abcdb21e2babcb504dbfc7710a89934fa456d26096
fetch tree-sitter-javascript 0.25.0 6214ce23d03aba525ba8edd6ca7caf365c969f2c2dbfc353e376ca54507ffb92

lib=tree-sitter/vendor/tree-sitter/lib
clang-14 --target=wasm32-wasi --sysroot=/usr -mexec-model=reactor -O2 -DNDEBUG \
	-ffile-prefix-map="$work"=. -ffile-prefix-map="$here"=. \
	-fvisibility=hidden -Wl,--strip-all -Wl,-z,stack-size=262144 -Wl,--initial-memory=4194304 \
	-I"$lib/include" -I"$lib/src" \
	"$here/glue.c" "$lib/src/lib.c" \
	-Itree-sitter-python/src tree-sitter-python/src/parser.c tree-sitter-python/src/scanner.c \
	tree-sitter-javascript/src/parser.c tree-sitter-javascript/src/scanner.c \
	-o parser.wasm
gzip -9 -n -c parser.wasm > "$here/parser.wasm.gz"
cd "$here"
sha256sum parser.wasm.gz > parser.sum
cat parser.sum
