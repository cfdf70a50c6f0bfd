package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
)

// Start implements brig.Instance.
func (i *instance) Start(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (brig.Process, error) {
	p, err := i.Guest.StartCarried(ctx, id, cmd, s)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Keep implements brig.Instance. The agent keeps the process's descriptors. The
// server keeps the note, which the guest must not see.
func (i *instance) Keep(ctx context.Context, p brig.Process, text []byte) error {
	c, ok := p.(*guest.Carried)
	if !ok {
		return fmt.Errorf("keep: %T is not a process of this provider", p)
	}
	if len(text) == 0 {
		return errors.Join(i.Guest.DetachCarried(ctx, c.ID(), false), i.f.writeNote(c.ID(), nil))
	}
	// If the server dies between the two, a note without a process is left. The
	// agent would keep a process without a note until the sandbox ends.
	if err := i.f.writeNote(c.ID(), text); err != nil {
		return err
	}
	return i.Guest.DetachCarried(ctx, c.ID(), true)
}

// Kept implements brig.Instance.
func (i *instance) Kept(ctx context.Context) (out []brig.Kept, err error) {
	notes, err := i.f.readNotes()
	if err != nil {
		return nil, err
	}
	for _, n := range notes {
		p, err := i.Guest.ReattachCarried(ctx, n.ID)
		if brig.KindOf(err) == brig.NotFound {
			i.p.Log.WarnContext(ctx, "a process ended while no server ran", "sandbox", i.id, "exec", n.ID)
			continue
		}
		if err != nil {
			return out, err
		}
		out = append(out, brig.Kept{ID: n.ID, Note: n.Note, Process: p})
	}
	return out, nil
}
