package seal_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/brig-run/brig/internal/seal"
)

func openKeyring(t *testing.T, s seal.Source) *seal.Keyring {
	t.Helper()
	k, err := seal.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestLocationsAreUnambiguous(t *testing.T) {
	k := openKeyring(t, seal.File{Path: filepath.Join(t.TempDir(), "keys")})
	value := []byte("the value")
	key, sealed := k.Seal(value, "secrets", "acme", "token", "1")
	if bytes.Contains(sealed, value) || key != k.Primary() {
		t.Errorf("sealed as %q under %s", sealed, key)
	}
	if got, err := k.Open(key, sealed, "secrets", "acme", "token", "1"); err != nil || !bytes.Equal(got, value) {
		t.Fatalf("%q, %v", got, err)
	}
	if _, again := k.Seal(value, "secrets", "acme", "token", "1"); bytes.Equal(again, sealed) {
		t.Error("one value is sealed in the same way twice")
	}
	for _, where := range [][]string{
		{"secrets", "other", "token", "1"}, {"secrets", "acme", "other", "1"}, {"secrets", "acme", "token", "2"},
		{"secrets", "acmetoken", "", "1"}, {"secrets", "acme", "token1"}, nil,
	} {
		if got, err := k.Open(key, sealed, where...); !errors.Is(err, seal.ErrForged) {
			t.Errorf("it opens at %q: %q, %v", where, got, err)
		}
	}
	for i := range sealed {
		forged := bytes.Clone(sealed)
		forged[i] ^= 1
		if _, err := k.Open(key, forged, "secrets", "acme", "token", "1"); !errors.Is(err, seal.ErrForged) {
			t.Errorf("with byte %d changed: %v", i, err)
		}
	}
}

func TestWrongKeyCannotOpen(t *testing.T) {
	k, other := openKeyring(t, seal.FixedKeys{bytes.Repeat([]byte{1}, 32)}), openKeyring(t, seal.FixedKeys{bytes.Repeat([]byte{2}, 32)})
	key, sealed := k.Seal([]byte("x"), "a")
	if _, err := other.Open(key, sealed, "a"); !errors.Is(err, seal.ErrUnknownKey) {
		t.Error(err)
	}
	if _, err := other.Open(other.Primary(), sealed, "a"); !errors.Is(err, seal.ErrForged) {
		t.Error(err)
	}
	if err := k.Rotate(t.Context(), func() error { return nil }); !errors.Is(err, seal.ErrFixed) {
		t.Error(err)
	}
}

func TestInterruptedRotationKeepsOldKey(t *testing.T) {
	file := seal.File{Path: filepath.Join(t.TempDir(), "keys")}
	k := openKeyring(t, file)
	old, sealed := k.Seal([]byte("x"), "a")
	stop := errors.New("stop")
	if err := k.Rotate(t.Context(), func() error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if k.Primary() == old {
		t.Error("there is no new key")
	}
	// Values that move did not reseal can still be opened, even by the next
	// process.
	for _, ring := range []*seal.Keyring{k, openKeyring(t, file)} {
		if _, err := ring.Open(old, sealed, "a"); err != nil {
			t.Error(err)
		}
	}
	var key string
	if err := k.Rotate(t.Context(), func() error {
		b, err := k.Open(old, sealed, "a")
		key, sealed = k.Seal(b, "a")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, ring := range []*seal.Keyring{k, openKeyring(t, file)} {
		if _, err := ring.Open(key, sealed, "a"); err != nil {
			t.Error(err)
		}
		if _, err := ring.Open(old, nil, "a"); !errors.Is(err, seal.ErrUnknownKey) {
			t.Errorf("the old key is still there: %v", err)
		}
	}
	if info, err := os.Stat(file.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestParseRejectsInvalidKeys(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	for s, ok := range map[string]bool{
		hex.EncodeToString(key): true, "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=": true, "": false, "abcd": false,
		hex.EncodeToString(key) + "," + hex.EncodeToString(key[1:]): false,
	} {
		if got, err := seal.Parse(s); (err == nil) != ok || ok && !bytes.Equal(got[0], key) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

// TestKMSUnwrapsKeys uses a script that wraps keys as the KMS.
func TestKMSUnwrapsKeys(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "kms")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ncase $1 in wrap) base64;; unwrap) base64 -d;; esac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := seal.KMS{Path: filepath.Join(dir, "wrapped"), Command: []string{script}}
	k := openKeyring(t, s)
	key, sealed := k.Seal([]byte("x"), "a")
	if _, err := openKeyring(t, s).Open(key, sealed, "a"); err != nil {
		t.Error(err)
	}
	s.Command = []string{"false"}
	if _, err := seal.Open(context.Background(), s); err == nil {
		t.Error("a KMS that fails is not missed")
	}
	s.Path += "2"
	if _, err := seal.Open(context.Background(), s); err == nil {
		t.Error("a KMS that fails wraps")
	}
}
