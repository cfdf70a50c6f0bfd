package fake

import (
	"bytes"
	"context"
	"maps"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

var _ brig.Saver = (*Provider)(nil)

// save is a saved instance. It contains the files, and for pausable instances the
// background commands, which a restore starts again. Other programs are not saved.
type save struct {
	at     time.Time
	limits brig.Limits
	files  map[string][]byte
	execs  []*brig.Execution
	kept   map[string]brig.KeptProcess
	// key is the key of a packed save. unpacked reports whether the save is
	// currently unpacked.
	key      []byte
	unpacked bool
	// filesOnly means that a restore restores only the files.
	filesOnly bool
}

func (s *save) bytes() (n int64) {
	for name, data := range s.files {
		n += int64(len(name) + len(data))
	}
	if s.key != nil {
		n /= 2
	}
	return n + 1
}

// CheckSave implements brig.Saver.
func (p *Provider) CheckSave(_ context.Context, in brig.Instance) error {
	return checkSaveable(in, false)
}

func checkSaveable(in brig.Instance, filesOnly bool) error {
	m, ok := in.(*instance)
	if !ok {
		return brig.Errorf(brig.Unimplemented, "%T is not a machine of this provider", in)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.exit != nil {
		return brig.Errorf(brig.FailedPrecondition, "the machine has ended")
	}
	if m.spec.BuildRights && !filesOnly {
		return brig.Errorf(brig.FailedPrecondition, "the memory of a machine that builds a template cannot be saved")
	}
	for id := range m.kept {
		if filesOnly {
			break
		}
		return brig.Errorf(brig.FailedPrecondition, "a running program prevents the save: process %s", id)
	}
	return nil
}

// Save implements brig.Saver.
func (p *Provider) Save(ctx context.Context, in brig.Instance, to brig.SaveID, o brig.SaveOptions) (*brig.Save, error) {
	if err := checkSaveable(in, o.FilesOnly); err != nil {
		return nil, err
	}
	if p.OnSave != nil {
		if err := p.OnSave(to); err != nil {
			return nil, err
		}
	}
	m := in.(*instance)
	m.mu.Lock()
	s := &save{at: time.Now().UTC(), limits: m.spec.Limits, files: maps.Clone(m.files), execs: m.execs, kept: maps.Clone(m.carried)}
	m.mu.Unlock()
	if o.FilesOnly {
		s.filesOnly, s.execs, s.kept = true, nil, nil
		maps.DeleteFunc(s.files, func(name string, _ []byte) bool { return strings.HasPrefix(name, "/tmp/") })
	}
	p.mu.Lock()
	if p.saves == nil {
		p.saves = map[brig.SaveID]*save{}
	}
	p.saves[to] = s
	p.mu.Unlock()
	if !o.Stay {
		m.finish(brig.Saved, 137)
	}
	return p.GetSave(ctx, to)
}

// GetSave implements brig.Saver.
func (p *Provider) GetSave(_ context.Context, id brig.SaveID) (*brig.Save, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.saves[id]
	if s == nil {
		return nil, brig.Errorf(brig.NotFound, "there is no save %q", id)
	}
	return &brig.Save{At: s.at, Bytes: s.bytes(), Packed: s.key != nil, FilesOnly: s.filesOnly}, nil
}

// Pack implements brig.Saver.
func (p *Provider) Pack(ctx context.Context, id brig.SaveID, key []byte) (*brig.Save, error) {
	if p.OnPack != nil {
		if err := p.OnPack(ctx, id); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	s := p.saves[id]
	if s != nil {
		if s.key == nil {
			s.key = bytes.Clone(key)
		}
		s.unpacked = false
	}
	p.mu.Unlock()
	return p.GetSave(ctx, id)
}

// Unpack implements brig.Saver.
func (p *Provider) Unpack(_ context.Context, id brig.SaveID, key []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.saves[id]
	switch {
	case s == nil:
		return brig.Errorf(brig.NotFound, "there is no save %q", id)
	case s.key == nil:
		return nil
	case !bytes.Equal(s.key, key):
		return brig.Errorf(brig.FailedPrecondition, "the save has another key")
	}
	s.unpacked = true
	return nil
}

// Restore implements brig.Saver.
func (p *Provider) Restore(ctx context.Context, from brig.SaveID, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	p.mu.Lock()
	s := p.saves[from]
	packed := s != nil && s.key != nil && !s.unpacked
	p.mu.Unlock()
	switch {
	case s == nil:
		return nil, brig.Errorf(brig.NotFound, "there is no save %q", from)
	case packed:
		return nil, brig.Errorf(brig.FailedPrecondition, "the save is packed")
	case s.limits != spec.Limits && !s.filesOnly:
		return nil, brig.Errorf(brig.FailedPrecondition, "the save cannot be restored here: it has other limits")
	}
	if p.OnRestore != nil {
		if err := p.OnRestore(id); err != nil {
			return nil, err
		}
	}
	in, err := p.Create(ctx, id, spec, lease)
	if err != nil {
		return nil, err
	}
	m := in.(*instance)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files, m.execs, m.carried = maps.Clone(s.files), s.execs, map[string]brig.KeptProcess{}
	for id, k := range s.kept {
		k.Process = m.startPlain(ctx, id, k.Process.(*plainProcess).cmd)
		m.carried[id] = k
	}
	return in, nil
}

// Saves returns the number of saves.
func (p *Provider) Saves() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.saves)
}

// Unpacked returns the number of packed saves that are currently unpacked.
func (p *Provider) Unpacked() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.saves {
		if s.unpacked {
			n++
		}
	}
	return n
}

// RemoveSave implements brig.Saver.
func (p *Provider) RemoveSave(_ context.Context, id brig.SaveID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.saves, id)
	return nil
}
