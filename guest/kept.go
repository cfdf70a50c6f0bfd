package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/brig-run/brig"
)

// KeepCarried makes the agent keep a process, or no longer keep it if the note is empty. store
// writes or removes the note, which must be outside the guest.
//
// A kept process always has a note, even if the server exits during the call. Without a note, the
// agent would keep the process until the sandbox ends. A note without a process is ignored.
func (g *Guest) KeepCarried(ctx context.Context, p brig.Process, note []byte, store func(id string, note []byte) error) error {
	c, ok := p.(*CarriedProcess)
	if !ok {
		return fmt.Errorf("keep: %T is not a process of this provider", p)
	}
	if len(note) == 0 {
		return errors.Join(g.DetachCarried(ctx, c.ID(), false), store(c.ID(), nil))
	}
	if err := store(c.ID(), note); err != nil {
		return err
	}
	return g.DetachCarried(ctx, c.ID(), true)
}

// Notebook stores the notes of a sandbox's kept processes, each in a file.
type Notebook struct {
	Dir string
	// Names converts the id of a process to the name of its file.
	Names interface {
		EncodeToString([]byte) string
		DecodeString(string) ([]byte, error)
	}
	// Write writes a file atomically, and Read reads it. Until a file is
	// complete, it has a name that Names does not return.
	Write func(name, id string, note []byte) error
	Read  func(name string) (note []byte, err error)
}

// Put stores or replaces the note of a process, or removes it if it is empty.
func (b *Notebook) Put(id string, note []byte) error {
	name := filepath.Join(b.Dir, b.Names.EncodeToString([]byte(id)))
	if len(note) == 0 {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return fmt.Errorf("keep: %w", err)
	}
	return b.Write(name, id, note)
}

// KeptProcesses takes over the processes that have notes. It calls ended for the processes that ended while
// no server was running.
func (b *Notebook) KeptProcesses(ctx context.Context, g *Guest, ended func(id string)) (out []brig.KeptProcess, err error) {
	entries, err := os.ReadDir(b.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list kept programs: %w", err)
	}
	for _, e := range entries {
		id, err := b.Names.DecodeString(e.Name())
		if err != nil || b.Names.EncodeToString(id) != e.Name() {
			continue // an incomplete file; base32 ignores data after the padding
		}
		note, err := b.Read(filepath.Join(b.Dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed after the directory was read
		}
		if err != nil {
			return out, fmt.Errorf("read kept programs: %w", err)
		}
		p, err := g.ReattachCarried(ctx, string(id))
		if brig.KindOf(err) == brig.NotFound {
			ended(string(id))
			continue
		}
		if err != nil {
			return out, err
		}
		out = append(out, brig.KeptProcess{ID: string(id), Note: note, Process: p})
	}
	return out, nil
}
