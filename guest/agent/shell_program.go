package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// selfNames are the expressions with which a script can determine the name of its own file.
var selfNames = []string{"$0", "${0", "BASH_SOURCE", "BASH_ARGV0", "caller", "main.sh"}

// maxScriptNames is the maximum number of names that are tried for a script's file.
const maxScriptNames = 10

// writeScript writes a script into its working directory if the script can use
// its own name, because scripts find other files beside them. All other scripts
// stay in the driver's directory, so that the working directory has only the
// user's files.
func (d *shellDriver) writeScript(o shellOrder) (file string, err error) {
	private := filepath.Join(d.dir, "main.sh")
	for _, name := range selfNames {
		if !strings.Contains(o.Code, name) {
			continue
		}
		dir := o.Dir
		if dir == "" {
			if dir, err = os.Getwd(); err != nil {
				return "", err
			}
		}
		if file, err = d.placeScript(dir, []byte(o.Code)); err == nil {
			return file, nil
		}
		// The user may lack write permission there.
		if err = linkAll(dir, d.dir); err == nil {
			return d.placeScript(d.dir, []byte(o.Code))
		}
		break
	}
	return private, os.WriteFile(private, []byte(o.Code), 0o600)
}

// linkAll links the files of one directory in another one.
func linkAll(from, to string) error {
	entries, err := os.ReadDir(from)
	for _, e := range entries {
		err = errors.Join(err, os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
	}
	return err
}

// placeScript writes a script to a name that is free in a directory.
// An existing file with the same content is the script itself.
func (d *shellDriver) placeScript(dir string, code []byte) (file string, err error) {
	for n := range maxScriptNames {
		file = filepath.Join(dir, "main.sh")
		if n > 0 {
			file = filepath.Join(dir, fmt.Sprintf("main-%d.sh", n))
		}
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			if st, err := os.Stat(file); err != nil || st.Size() != int64(len(code)) {
				continue
			}
			if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, code) {
				return file, nil
			}
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(code)
		if err = errors.Join(err, f.Close()); err == nil {
			// Report the file, so that it is not kept in the workspace.
			err = d.send(shellMessage{Type: "file", Path: file})
		}
		if err != nil {
			os.Remove(file)
			return "", err
		}
		return file, nil
	}
	return "", fs.ErrExist
}
