package docker

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/internal/supervise"
)

// foldersDir is the directory with a directory for each sandbox.
const foldersDir = "docker"

// folder is the server's directory of one sandbox.
type folder struct{ dir string }

// Files in a sandbox's directory.
const (
	orderFile      = "order.json"
	endRequestFile = "asked.json" // the endRequest of the sandbox
	endingFile     = "ending.json"
	logFile        = "log"  // journal with the output of the main program
	seenFile       = "seen" // position in the engine's log up to which it was copied
	keptDir        = "kept" // notes of kept processes
)

func (p *Provider) folder(id brig.ID) folder {
	return folder{filepath.Join(p.DataDir, foldersDir, string(id))}
}

func (f folder) path(name string) string { return filepath.Join(f.dir, name) }

// orderVersion is the version of the order and handle formats.
const orderVersion = 1

// order is the configuration with which a sandbox was created or bound.
type order struct {
	Version   int
	Container string
	Hostname  string
	Limits    brig.Limits
	Env       map[string]string
	Main      bool // the sandbox has a main program
	Lease     time.Time
	Ephemeral bool
	Uplink    bool     `json:",omitempty"` // the sandbox may have a network link
	Lingers   bool     `json:",omitempty"` // the sandbox does not end with its main program
	Notes     []string `json:",omitempty"`
}

func (f folder) readOrder() (o order, ok bool, err error) {
	ok, err = f.read(orderFile, &o)
	return o, ok, err
}

func (f folder) writeOrder(o order) error { return f.write(orderFile, o) }

// read reads one of the directory's files. It returns false if the file does
// not exist.
func (f folder) read(name string, v any) (bool, error) {
	return supervise.ReadRecord(f.path(name), v)
}

// write writes a file atomically.
func (f folder) write(name string, v any) error {
	return supervise.WriteRecord(f.path(name), v, true)
}

// note is the stored note of a process.
type note struct {
	ID   string
	Note []byte
}

// notebook returns the notes of processes.
func (f folder) notebook() *guest.Notebook {
	return &guest.Notebook{
		Dir: f.path(keptDir), Names: base64.RawURLEncoding,
		Write: func(name, id string, text []byte) error {
			return supervise.WriteRecord(name, note{id, text}, true)
		},
		Read: func(name string) ([]byte, error) {
			var n note
			ok, err := supervise.ReadRecord(name, &n)
			if err == nil && !ok {
				err = fs.ErrNotExist
			}
			return n.Note, err
		},
	}
}

// serverNameOf returns the server name of a data folder, and creates one if
// none exists.
func serverNameOf(dir string) (string, error) {
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
			err = os.Link(f.Name(), name) // another server may have created it first
		}
		os.Remove(f.Name())
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("name the server: %w", err)
		}
	}
}
