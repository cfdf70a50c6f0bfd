package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/brig-run/brig"
)

// secretFile reads a secret of one line, or makes it. What says in errors what
// it is.
func secretFile(file, what string, fresh func() string) (string, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		b = []byte(fresh() + "\n")
		err = writeSecret(file, b)
	}
	if err != nil {
		return "", brig.Errorf(brig.NotInitialized, "%s cannot be read or made", what).
			WithHint("check the owner and mode of the data folder").Because(err)
	}
	secret := strings.TrimSpace(string(b))
	if len(secret) < 40 {
		return "", brig.Errorf(brig.NotInitialized, "%s in %s is too short", what, file).
			WithHint("remove the file; the next start makes a new one")
	}
	return secret, nil
}

// writeSecret writes a file that only we may read, whole or not at all.
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
