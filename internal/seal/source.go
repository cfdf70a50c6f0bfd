package seal

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// File stores keys in a file that only its owner can read, one per line in
// base64. The first start creates it.
type File struct{ Path string }

// Keys implements Source.
func (f File) Keys(ctx context.Context) ([][]byte, error) {
	return readOrMake(ctx, f.Path, f, func(_ context.Context, b []byte) ([]byte, error) { return b, nil })
}

// Put implements Source.
func (f File) Put(_ context.Context, keys [][]byte) error { return writeLines(f.Path, keys) }

// FixedKeys holds keys that the process received, for example from its environment.
type FixedKeys [][]byte

// Parse parses comma-separated keys in base64 or hexadecimal.
func Parse(s string) (FixedKeys, error) {
	var out FixedKeys
	for i, part := range strings.Split(s, ",") {
		part = strings.TrimSpace(part)
		key, err := hex.DecodeString(part)
		if err != nil || len(key) != KeySize {
			key, err = base64.StdEncoding.DecodeString(part)
		}
		if err != nil || len(key) != KeySize {
			return nil, fmt.Errorf("key %d is not %d bytes in base64 or hexadecimal digits", i+1, KeySize)
		}
		out = append(out, key)
	}
	return out, nil
}

// Keys implements Source.
func (f FixedKeys) Keys(context.Context) ([][]byte, error) { return f, nil }

// Put implements Source.
func (f FixedKeys) Put(context.Context, [][]byte) error { return ErrFixed }

// KMS stores keys in a file, wrapped by a key management service. A command calls the service.
// Its last argument is "wrap" or "unwrap". It reads its input from standard input and writes
// the result to standard output.
type KMS struct {
	Path    string
	Command []string
}

// kmsTimeout bounds one run of the KMS command.
const kmsTimeout = 30 * time.Second

// Keys implements Source.
func (k KMS) Keys(ctx context.Context) ([][]byte, error) {
	return readOrMake(ctx, k.Path, k, func(ctx context.Context, b []byte) ([]byte, error) { return k.run(ctx, "unwrap", b) })
}

// Put implements Source.
func (k KMS) Put(ctx context.Context, keys [][]byte) error {
	var wrapped [][]byte
	for _, key := range keys {
		b, err := k.run(ctx, "wrap", key)
		if err != nil {
			return err
		}
		if back, err := k.run(ctx, "unwrap", b); err != nil || !bytes.Equal(back, key) {
			return errors.Join(errors.New("the KMS command does not unwrap what it wrapped"), err)
		}
		wrapped = append(wrapped, b)
	}
	return writeLines(k.Path, wrapped)
}

func (k KMS) run(ctx context.Context, what string, in []byte) ([]byte, error) {
	if len(k.Command) == 0 {
		return nil, errors.New("there is no KMS command")
	}
	ctx, cancel := context.WithTimeout(ctx, kmsTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.Command[0], append(k.Command[1:len(k.Command):len(k.Command)], what)...)
	cmd.Stdin = bytes.NewReader(in)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("KMS command, %s: %w: %.500s", what, err, errs.Bytes())
	}
	return out, nil
}

// readOrMake reads a key file, or creates the file with one key.
func readOrMake(ctx context.Context, path string, s Source, decrypt func(context.Context, []byte) ([]byte, error)) ([][]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key := make([]byte, KeySize)
		_, _ = rand.Read(key) // never fails
		return [][]byte{key}, s.Put(ctx, [][]byte{key})
	}
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	for i, line := range strings.Fields(string(b)) {
		raw, err := base64.StdEncoding.DecodeString(line)
		if err == nil {
			raw, err = decrypt(ctx, raw)
		}
		if err != nil {
			return nil, fmt.Errorf("key %d of %s: %w", i+1, path, err)
		}
		keys = append(keys, raw)
	}
	return keys, nil
}

// writeLines replaces a file atomically.
func writeLines(path string, lines [][]byte) error {
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(base64.StdEncoding.EncodeToString(l) + "\n")
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b.Bytes())
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
