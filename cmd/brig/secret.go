package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/brig-run/brig"
)

// readSecretFile reads a one-line secret from a file, or creates the file with a fresh secret. The
// argument what describes the secret in errors.
func readSecretFile(file, what string, fresh func() string) (string, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		b = []byte(fresh() + "\n")
		err = writeSecret(file, b)
	}
	if err != nil {
		return "", brig.Errorf(brig.NotInitialized, "cannot read or create %s", what).
			WithHint("check the owner and mode of the data folder").Because(err)
	}
	secret := strings.TrimSpace(string(b))
	if len(secret) < 40 {
		return "", brig.Errorf(brig.NotInitialized, "%s in %s is too short", what, file).
			WithHint("remove the file; the next start creates a new one")
	}
	return secret, nil
}

// writeSecret writes a file that only the current user may read. The write is
// atomic.
func writeSecret(file string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".key-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
