package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
)

// keptDescriptors is how many descriptors a process has on the host.
const keptDescriptors = 5

// keepsakes are the host's ends of processes, which a shim holds so that they
// survive the server.
type keepsakes struct {
	mu sync.Mutex // guards the field below
	by map[string]keepsake
}

// keptNote is what a shim keeps of a process beside its descriptors.
type keptNote struct {
	PID   int
	Plain bool `json:",omitempty"`
	Note  []byte
}

type keepsake struct {
	note []byte
	fds  []int
}

// put keeps, replaces, or with an empty note drops. The descriptors are the
// keeper's from now on.
func (k *keepsakes) put(id string, note []byte, fds []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old, known := k.by[id]
	switch {
	case len(note) == 0:
		delete(k.by, id)
	case len(fds) == 0 && known:
		k.by[id] = keepsake{note, old.fds} // only the note has changed
		return
	default:
		if k.by == nil {
			k.by = map[string]keepsake{}
		}
		k.by[id] = keepsake{note, fds}
		fds = nil
	}
	for _, fd := range append(old.fds, fds...) {
		unix.Close(fd)
	}
}

// sendAll sends everything that is kept, and an answer without an ID.
func (k *keepsakes) sendAll(c *net.UnixConn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, v := range k.by {
		if send(c, answer{ID: id, Note: v.note}, v.fds...) != nil {
			return
		}
	}
	_ = send(c, answer{})
}

// Start implements brig.Instance.
func (i *instance) Start(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (brig.Process, error) {
	p, err := i.Guest.Start(ctx, id, cmd, s)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Keep implements brig.Instance.
func (i *instance) Keep(ctx context.Context, p brig.Process, note []byte) (err error) {
	gp, ok := p.(*guest.Process)
	if !ok {
		return fmt.Errorf("keep: %T is not a process of this provider", p)
	}
	if len(note) == 0 { // of one that may be closed
		return i.l.tell(ctx, request{Op: "keep", ID: gp.ID()})
	}
	if note, err = json.Marshal(keptNote{PID: gp.PID(), Plain: gp.Plain(), Note: note}); err != nil {
		return err
	}
	return gp.Descriptors(func(fds []int) error {
		return i.l.tell(ctx, request{Op: "keep", ID: gp.ID(), Note: note}, fds...)
	})
}

// Kept implements brig.Instance.
func (i *instance) Kept(ctx context.Context) ([]brig.Kept, error) {
	c, err := i.l.ask(ctx, request{Op: "kept"})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var out []brig.Kept
	r := &answers{c: c}
	defer r.close()
	for {
		a, fds, err := r.next()
		if err != nil {
			return out, fmt.Errorf("ask shim what it keeps: %w", err)
		}
		if a.ID == "" {
			return out, nil
		}
		var n keptNote
		if err := json.Unmarshal(a.Note, &n); err != nil {
			return out, fmt.Errorf("decode what the shim keeps: %w", err)
		}
		p, err := i.Guest.Adopt(a.ID, n.PID, n.Plain, fds)
		if err != nil {
			return out, err
		}
		out = append(out, brig.Kept{ID: a.ID, Note: n.Note, Process: p})
	}
}

// answers reads answers and the descriptors that come with them. A read may
// end in the middle of a long answer, and the next one begin there and bring
// the descriptors of another: they are told apart by their number.
type answers struct {
	c   *net.UnixConn
	buf []byte
	fds []int
}

// close closes the descriptors that no answer was read for.
func (r *answers) close() {
	for _, fd := range r.fds {
		unix.Close(fd)
	}
}

func (r *answers) next() (a answer, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*keptDescriptors))
	for {
		if line, rest, ok := bytes.Cut(r.buf, []byte("\n")); ok {
			r.buf = rest
			err = json.Unmarshal(line, &a)
			if a.ID != "" {
				n := min(keptDescriptors, len(r.fds))
				fds, r.fds = r.fds[:n:n], r.fds[n:]
			}
			return a, fds, err
		}
		b := make([]byte, oneRead)
		n, oobn, _, _, err := r.c.ReadMsgUnix(b, oob)
		if err != nil {
			return a, fds, err
		}
		if n == 0 {
			return a, fds, net.ErrClosed
		}
		r.buf = append(r.buf, b[:n]...)
		r.fds = append(r.fds, descriptors(oob[:oobn])...)
	}
}
