package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/brig-run/brig/internal/failpoint"
)

//go:embed embedded
var embedded embed.FS

// These are the names of the programs that may be embedded.
const (
	agentName  = "brig-agent"
	engineName = "brig-engine"
	shimName   = "brig-shim"
)

// self is the path of this binary. It remains valid if the file is replaced.
const self = "/proc/self/exe"

// programsDir returns the directory of the programs that were unpacked.
func programsDir(dataDir string) string { return filepath.Join(dataDir, "bin") }

// unpack writes an embedded program to the data folder, once per version, and returns its path. If
// the program is not embedded, it returns this binary, which contains all programs.
func unpack(dataDir, name string) (string, error) {
	packed, err := embedded.ReadFile("embedded/" + name + ".gz")
	if errors.Is(err, fs.ErrNotExist) || failpoint.Enabled && name != agentName {
		return self, nil // embedded programs have no failpoints
	}
	if err != nil {
		return "", fmt.Errorf("read embedded %s: %w", name, err)
	}
	sum := sha256.Sum256(packed)
	file := filepath.Join(programsDir(dataDir), name+"-"+hex.EncodeToString(sum[:8]))
	if st, err := os.Stat(file); err == nil {
		// The time of the last use, to an hour, keeps the server of another version from
		// removing the program.
		if now := time.Now(); now.Sub(st.ModTime()) > time.Hour {
			_ = os.Chtimes(file, now, now) // a removed program is unpacked again
		}
		return file, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("unpack %s: %w", name, err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("unpack %s: %w", name, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".unpack-")
	if err != nil {
		return "", fmt.Errorf("unpack %s: %w", name, err)
	}
	defer os.Remove(tmp.Name())
	_, err = io.Copy(tmp, r)
	err = errors.Join(err, tmp.Chmod(0o500), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return "", fmt.Errorf("unpack %s: %w", name, err)
	}
	return file, nil
}
