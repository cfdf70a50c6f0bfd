package docker

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// foldersDir holds a folder for each sandbox.
const foldersDir = "docker"

// folder is what a server keeps of one sandbox.
type folder struct{ dir string }

// The files in a sandbox's folder.
const (
	orderFile  = "order.json"
	askedFile  = "asked.json" // why somebody has ended it
	endingFile = "ending.json"
	logFile    = "log"  // what its programs wrote, a journal
	seenFile   = "seen" // how much of the engine's log is in the journal
	keptDir    = "kept" // notes of processes
)

func (p *Provider) folder(id brig.ID) folder {
	return folder{filepath.Join(p.DataDir, foldersDir, string(id))}
}

func (f folder) path(name string) string { return filepath.Join(f.dir, name) }

// orderVersion is the version of order and of the handle.
const orderVersion = 1

// order is what a machine was made as, or bound to.
type order struct {
	Version   int
	Container string
	Hostname  string
	Limits    brig.Limits
	Env       map[string]string
	Main      bool // it has a main program
	Lease     time.Time
	Ephemeral bool
	Uplink    bool     `json:",omitempty"` // it may have one
	Lingers   bool     `json:",omitempty"` // it does not end with its main program
	Notes     []string `json:",omitempty"`
}

func (f folder) readOrder() (o order, ok bool, err error) {
	ok, err = f.read(orderFile, &o)
	return o, ok, err
}

func (f folder) writeOrder(o order) error { return f.write(orderFile, o) }

// read reads a file of ours, and reports false when there is none.
func (f folder) read(name string, v any) (bool, error) {
	b, err := os.ReadFile(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	return true, nil
}

// write writes a file that is there whole or not at all, whatever dies.
func (f folder) write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(f.path(name)), ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), f.path(name))
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// note is what is kept of a process: of its id too, which may not be fit to
// name a file.
type note struct {
	ID   string
	Note []byte
}

func (f folder) notePath(id string) string {
	return filepath.Join(keptDir, base64.RawURLEncoding.EncodeToString([]byte(id)))
}

func (f folder) keep(id string, text []byte) error {
	if len(text) == 0 {
		err := os.Remove(f.path(f.notePath(id)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := os.MkdirAll(f.path(keptDir), 0o700); err != nil {
		return err
	}
	return f.write(f.notePath(id), note{id, text})
}

func (f folder) kept() (out []note, err error) {
	entries, err := os.ReadDir(f.path(keptDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		var n note
		if ok, err := f.read(filepath.Join(keptDir, e.Name()), &n); err != nil {
			return out, err
		} else if ok {
			out = append(out, n)
		}
	}
	return out, err
}

// instanceOf returns the name of the server that has a data folder, which it
// gets when it has none.
func instanceOf(dir string) (string, error) {
	name := filepath.Join(dir, "docker.instance")
	for {
		b, err := os.ReadFile(name)
		if err == nil && len(b) > 0 {
			return strings.TrimSpace(string(b)), nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("read the server's name: %w", err)
		}
		f, err := os.CreateTemp(dir, ".new-*")
		if err != nil {
			return "", fmt.Errorf("name the server: %w", err)
		}
		_, err = f.WriteString(strings.ToLower(rand.Text()) + "\n")
		err = errors.Join(err, f.Sync(), f.Close())
		if err == nil {
			err = os.Link(f.Name(), name) // another one may be first
		}
		os.Remove(f.Name())
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("name the server: %w", err)
		}
	}
}
