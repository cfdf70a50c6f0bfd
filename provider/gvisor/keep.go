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
	"github.com/brig-run/brig/internal/failpoint"
)

// keptDescriptors is the number of descriptors that the host holds for each
// process.
const keptDescriptors = 5

// keptProcesses are the host's descriptors of processes. The shim holds these
// descriptors so that they outlive the server.
type keptProcesses struct {
	mu sync.Mutex // guards the field below
	by map[string]keptProcess
}

// keptNote is the data about a process that a shim stores beside the
// descriptors.
type keptNote struct {
	PID   int
	Plain bool `json:",omitempty"`
	Note  []byte
}

type keptProcess struct {
	note    []byte
	fds     []int
	parking bool // a server has begun to park the process
}

// put adds or replaces an entry, or removes the entry if the note is empty. If
// carried is set, the agent holds the process's descriptors. Otherwise an entry
// without new descriptors keeps its own. put takes ownership of the new
// descriptors.
func (k *keptProcesses) put(id string, note []byte, carried bool, fds []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old, ok := k.by[id]
	switch {
	case len(note) == 0:
		delete(k.by, id)
	case len(fds) == 0 && ok && !carried:
		k.by[id] = keptProcess{note, old.fds, old.parking} // only the note has changed
		return
	default:
		if k.by == nil {
			k.by = map[string]keptProcess{}
		}
		k.by[id] = keptProcess{note: note, fds: fds}
		fds = nil
	}
	for _, fd := range append(old.fds, fds...) {
		unix.Close(fd)
	}
}

// park records that a server begins to park a process. If that server dies,
// the next server reattaches to the process through the agent or through the
// descriptors.
func (k *keptProcesses) park(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p, ok := k.by[id]; ok {
		p.parking = true
		k.by[id] = p
	}
}

// sendAll sends a response for each entry, and then a response without an ID.
func (k *keptProcesses) sendAll(c *net.UnixConn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, v := range k.by {
		if send(c, response{ID: id, Note: v.note, Carried: len(v.fds) == 0, Parking: v.parking}, v.fds...) != nil {
			return
		}
	}
	_ = send(c, response{})
}

// Start implements brig.Instance.
func (i *instance) Start(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (brig.Process, error) {
	if i.order.Carried {
		return i.Guest.StartCarried(ctx, id, cmd, s)
	}
	p, err := i.Guest.Start(ctx, id, cmd, s)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Keep implements brig.Instance.
func (i *instance) Keep(ctx context.Context, p brig.Process, note []byte) (err error) {
	if cp, carried := p.(*guest.CarriedProcess); carried {
		return i.Guest.KeepCarried(ctx, cp, note, func(_ string, note []byte) error {
			return i.storeNote(ctx, cp, note)
		})
	}
	gp, ok := p.(*guest.Process)
	if !ok {
		return fmt.Errorf("keep: %T is not a process of this provider", p)
	}
	if len(note) == 0 { // the process may already be closed
		return i.l.sendRequest(ctx, request{Op: "keep", ID: gp.ID()})
	}
	if note, err = json.Marshal(keptNote{PID: gp.PID(), Plain: gp.IsPlain(), Note: note}); err != nil {
		return err
	}
	return gp.WithDescriptors(func(fds []int) error {
		return i.l.sendRequest(ctx, request{Op: "keep", ID: gp.ID(), Note: note}, fds...)
	})
}

// storeNote stores or removes the note of a process whose descriptors the agent
// holds. The shim then holds only the note.
func (i *instance) storeNote(ctx context.Context, p *guest.CarriedProcess, note []byte) error {
	if len(note) == 0 {
		return i.l.sendRequest(ctx, request{Op: "keep", ID: p.ID()})
	}
	note, err := json.Marshal(keptNote{PID: p.PID(), Note: note})
	if err != nil {
		return err
	}
	return i.l.sendRequest(ctx, request{Op: "keep", ID: p.ID(), Note: note, Carried: true})
}

// KeptProcesses implements brig.Instance.
func (i *instance) KeptProcesses(ctx context.Context) ([]brig.KeptProcess, error) {
	c, err := i.l.openRequest(ctx, request{Op: "kept"})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var out []brig.KeptProcess
	r := &responseReader{c: c}
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
		p, err := i.reattach(ctx, a, &n, fds)
		if err != nil {
			return out, err
		}
		if p == nil {
			continue
		}
		out = append(out, brig.KeptProcess{ID: a.ID, Note: n.Note, Process: p})
	}
}

// reattach takes over a kept process. It returns nil if the process has ended
// and all of its output was read.
func (i *instance) reattach(ctx context.Context, a response, n *keptNote, fds []int) (brig.Process, error) {
	if !a.Carried && !a.Parking {
		return i.Guest.Reattach(a.ID, n.PID, n.Plain, fds)
	}
	p, err := i.Guest.ReattachCarried(ctx, a.ID)
	missing := brig.KindOf(err) == brig.NotFound
	switch {
	case missing && a.Parking: // the server died before the agent took over the process
		return i.Guest.Reattach(a.ID, n.PID, n.Plain, fds)
	case missing:
		return nil, i.l.sendRequest(ctx, request{Op: "keep", ID: a.ID})
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err == nil && a.Parking {
		err = i.l.sendRequest(ctx, request{Op: "keep", ID: a.ID, Note: a.Note, Carried: true})
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Park implements brig.Parker.
func (i *instance) Park(ctx context.Context, p brig.Process, notify func(dir string) error) (brig.Process, error) {
	gp, ok := p.(*guest.Process)
	if !ok { // the agent already holds the descriptors
		return p, nil
	}
	// If the server dies after this request, the next server queries the agent
	// first.
	if err := i.l.sendRequest(ctx, request{Op: "parking", ID: gp.ID()}); err != nil {
		return nil, err
	}
	failpoint.Hit("park.begun")
	c, err := i.Guest.Park(ctx, gp, notify)
	failpoint.Hit("park.held")
	if err != nil {
		return nil, err
	}
	return c, nil
}

// responseReader reads responses and their descriptors. A read may end within a long
// response, and the next read may then return the descriptors of a later
// response. The number of descriptors per response is fixed, so responseReader can
// assign them correctly.
type responseReader struct {
	c   *net.UnixConn
	buf []byte
	fds []int
}

// close closes the descriptors of responses that were not read.
func (r *responseReader) close() {
	for _, fd := range r.fds {
		unix.Close(fd)
	}
}

func (r *responseReader) next() (a response, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*keptDescriptors))
	for {
		if line, rest, ok := bytes.Cut(r.buf, []byte("\n")); ok {
			r.buf = rest
			err = json.Unmarshal(line, &a)
			if a.ID != "" && !a.Carried {
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
