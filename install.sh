#!/bin/sh
# Installs a release of Brig:
#
#	sh install.sh                 # the version that this script was released with
#	BRIG_VERSION=1.2.3 sh install.sh
#	BRIG_PREFIX=$HOME/.local sh install.sh
#
# It downloads the archive for this machine, SHA256SUMS and its signature, and
# installs nothing unless the signature is the releaser's and the checksum is that
# of the archive. It needs curl or wget, tar, sha256sum, and minisign or OpenSSL 3.
set -eu

# make release fills these in.
version=${BRIG_VERSION:-@VERSION@}
key=${BRIG_RELEASE_KEY:-@KEY@}
prefix=${BRIG_PREFIX:-/usr/local}

fail() { echo "install.sh: $*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

case $version in @*) fail "no version: set BRIG_VERSION" ;; esac
case $key in @* | '') fail "no release key: set BRIG_RELEASE_KEY to the key in docs/releases.md" ;; esac
version=${version#v}
base=${BRIG_URL_BASE:-https://github.com/brig-run/brig/releases/download/v$version}

[ "$(uname -s)" = Linux ] || fail "Brig runs on Linux only"
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "no release for $(uname -m)" ;;
esac
have tar || fail "tar is missing"
have sha256sum || fail "sha256sum is missing"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

fetch() {
	if have curl; then curl -fsSL -o "$work/$1" "$base/$1" || fail "cannot download $base/$1"
	elif have wget; then wget -q -O "$work/$1" "$base/$1" || fail "cannot download $base/$1"
	else fail "curl or wget is missing"; fi
}

# verify checks the signature of SHA256SUMS. minisign prefers the hash of the file
# (algorithm ED); OpenSSL then verifies the signature of that hash.
verify() {
	cd "$work"
	if have minisign; then
		minisign -V -q -m SHA256SUMS -P "$key" >&2 || fail "the signature of SHA256SUMS is wrong"
		return
	fi
	have openssl || fail "minisign or openssl is missing: the signature cannot be verified"
	echo "$key" | base64 -d > key 2>/dev/null && [ "$(wc -c < key)" = 42 ] || fail "the release key is not a minisign key"
	sed -n 2p SHA256SUMS.minisig | base64 -d > signature 2>/dev/null && [ "$(wc -c < signature)" = 74 ] ||
		fail "SHA256SUMS.minisig is not a minisign signature"
	[ "$(tail -c +3 key | head -c 8 | od -An -tx1)" = "$(tail -c +3 signature | head -c 8 | od -An -tx1)" ] ||
		fail "another key signed SHA256SUMS"
	case $(head -c 2 signature) in
	Ed) cp SHA256SUMS signed ;;
	ED) openssl dgst -blake2b512 -binary SHA256SUMS > signed || fail "OpenSSL cannot hash SHA256SUMS" ;;
	*) fail "SHA256SUMS.minisig has an unknown algorithm" ;;
	esac
	# The bytes before an Ed25519 key in a SubjectPublicKeyInfo.
	{ printf '\060\052\060\005\006\003\053\145\160\003\041\000'; tail -c 32 key; } > key.der
	tail -c 64 signature > raw
	openssl pkeyutl -verify -pubin -inkey key.der -keyform DER -rawin -in signed -sigfile raw >/dev/null 2>&1 ||
		fail "the signature of SHA256SUMS is wrong (or OpenSSL is older than 3)"
}

name=brig_${version}_linux_$arch
fetch SHA256SUMS
fetch SHA256SUMS.minisig
(verify)
# Exactly one line must name the archive.
[ "$(grep -c "^[0-9a-f]\{64\}  $name\.tar\.gz\$" "$work/SHA256SUMS")" = 1 ] || fail "SHA256SUMS does not list $name.tar.gz"
fetch "$name.tar.gz"
(cd "$work" && grep "^[0-9a-f]\{64\}  $name\.tar\.gz\$" SHA256SUMS | sha256sum -c - >/dev/null 2>&1) ||
	fail "the checksum of $name.tar.gz is wrong"

tar -xzf "$work/$name.tar.gz" -C "$work"
mkdir -p "$prefix/bin" "$prefix/share/man/man1"
# The new file replaces the old one atomically. A running server keeps its own.
cp "$work/$name/brig" "$prefix/bin/.brig.new"
chmod 755 "$prefix/bin/.brig.new"
mv -f "$prefix/bin/.brig.new" "$prefix/bin/brig"
cp "$work/$name/man/"*.gz "$prefix/share/man/man1/"
echo "Brig $version is in $prefix/bin/brig. Next: brig doctor"
