package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// small is up to which size a content is held in memory, in bytes, and atOnce
// how many are on their way.
const (
	small  = 1 << 20
	atOnce = 16
)

// Capture is a tree on its way into a new version.
type Capture struct {
	s       *Store
	tenant  string
	use     brig.WorkspaceUse
	sandbox brig.ID
	quota   int64 // in bytes, of all that the tenant's versions take; 0 is none
	release func()
	base    *Snapshot // what the sandbox had
	allowed policy
	files   manifest
	unseen  map[string]bool // paths of base, or ".", that did not come out
	outside manifest        // what was captured from elsewhere, nil if that was not asked for
	holds   map[string]bool
	skipped []brig.WorkspaceSkip
	passed  int
	total   int64
	outer   int64 // bytes of outside
	buf     []byte

	work  sync.WaitGroup
	slots chan struct{}
	mu    sync.Mutex // guards the fields below
	known map[string]bool
	err   error // of a content that could not be written
}

// Begin begins a version of the workspace that a sandbox has. The tenant's
// versions may take so many bytes, or any for 0. Close ends it.
func (s *Store) Begin(ctx context.Context, tenant string, sandbox brig.ID, use brig.WorkspaceUse, quota int64) (*Capture, error) {
	release, err := s.o.Hold(tenantKey(tenant), false)
	if err != nil {
		return nil, unavailable(err)
	}
	c := &Capture{
		s: s, tenant: tenant, use: use, sandbox: sandbox, release: release, allowed: use.Prefixes, files: manifest{}, unseen: map[string]bool{},
		slots: make(chan struct{}, atOnce), known: map[string]bool{}, buf: make([]byte, small+1), quota: quota, holds: map[string]bool{},
	}
	if len(use.Capture) > 0 {
		c.outside = manifest{}
	}
	n, err := s.find(ctx, tenant, use.Name)
	if err == nil && n.ID != use.ID {
		err = brig.Errorf(brig.FailedPrecondition, "workspace %q is another one than the sandbox began with", use.Name).
			WithHint("copy the files out of the sandbox")
	}
	if err == nil {
		c.use.Version, err = s.lastOf(ctx, tenant, use, sandbox)
	}
	if err == nil {
		c.base, err = s.open(ctx, tenant, use.Name, use.ID, c.use.Version)
	}
	if err == nil && c.base.rec != nil && c.base.rec.Sandbox == sandbox && c.base.rec.Own != "" {
		c.base.files, err = s.manifest(ctx, tenant, c.base.rec.Own)
		err = unavailable(err)
	}
	if err != nil {
		release()
		return nil, err
	}
	for _, e := range c.base.files {
		if e.digest != "" {
			c.known[e.digest] = true
		}
	}
	return c, nil
}

// lastOf returns the newest version that a sandbox has committed, or the one of
// its use. A server that dies right after a commit has not put the new version
// into the sandbox's record: without this, the sandbox's next commit would
// conflict with its own last one.
func (s *Store) lastOf(ctx context.Context, tenant string, use brig.WorkspaceUse, sandbox brig.ID) (int, error) {
	ns, err := s.numbers(ctx, tenant, use.ID)
	if err != nil {
		return 0, unavailable(err)
	}
	ns = slices.DeleteFunc(ns, func(n int) bool { return n <= use.Version })
	slices.Reverse(ns)
	for some := range slices.Chunk(ns, atOnce) {
		var work sync.WaitGroup
		mine, errs := make([]bool, len(some)), make([]error, len(some))
		for i, n := range some {
			work.Go(func() {
				r, err := s.version(ctx, tenant, use.ID, n)
				mine[i], errs[i] = err == nil && r.Sandbox == sandbox, err
			})
		}
		work.Wait()
		if err := errors.Join(errs...); err != nil {
			return 0, unavailable(err)
		}
		if i := slices.Index(mine, true); i >= 0 {
			return some[i], nil
		}
	}
	return use.Version, nil
}

// Close ends a capture. What it has written and no version names is swept some
// day.
func (c *Capture) Close() {
	c.work.Wait()
	c.s.ledger(c.tenant).release(c.holds)
	c.release()
}

// stay has all stay that the version had where nothing was seen: it was not seen
// to be gone. It is done once, however much was not seen.
func (c *Capture) stay() {
	if len(c.unseen) == 0 {
		return
	}
	for p, e := range c.base.files {
		if c.files[p] != nil && !c.unseen[p] {
			continue
		}
		above := p
		for above != "." && !c.unseen[above] {
			above = path.Dir(above)
		}
		if c.unseen[above] {
			c.files[p] = e
		}
	}
}

// skip remembers that something does not come along.
func (c *Capture) skip(at, why string) {
	if c.passed++; len(c.skipped) < brig.MaxWorkspaceTold {
		c.skipped = append(c.skipped, brig.WorkspaceSkip{Path: Printable(at), Reason: why})
	}
}

func tooMuch(what string, most any) error {
	return brig.Errorf(brig.FailedPrecondition, "the workspace has too much: %s", what).
		WithHint("a version has at most %v; remove some, or keep them outside /workspace", most)
}

// Add takes a node as it comes out of a machine.
func (c *Capture) Add(ctx context.Context, n brig.Node, r io.Reader) error {
	if n.Skipped != "" {
		// Of the rest the version has nothing, there or below.
		if c.base.files[n.Path] != nil || n.Path == "." {
			c.unseen[n.Path] = true
		}
		c.skip(n.Path, n.Skipped)
		return nil
	}
	if len(c.files) >= brig.MaxWorkspaceFiles {
		return tooMuch("files", fmt.Sprint(brig.MaxWorkspaceFiles, " files"))
	}
	if !localPath(n.Path) {
		return fmt.Errorf("a node of %.100q", n.Path) // its provider looks already
	}
	e := &entry{Node: n}
	if n.Type == brig.RegularFile {
		if err := c.content(ctx, e, r, c.allowed.covers(n.Path)); err != nil {
			return err
		}
		if c.total += e.Size; c.total > brig.MaxWorkspaceSize {
			return tooMuch("bytes", brig.FormatBytes(brig.MaxWorkspaceSize))
		}
	}
	c.files[n.Path] = e
	return nil
}

// content reads a file, and writes it where the store does not have it yet and
// it may become part of a version.
func (c *Capture) content(ctx context.Context, e *entry, r io.Reader, may bool) error {
	n, err := io.ReadFull(r, c.buf)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && n <= small:
		sum := sha256.Sum256(c.buf[:n])
		e.Size, e.digest = int64(n), hex.EncodeToString(sum[:])
		if n == 0 || !may || !c.wants(e) {
			return nil
		}
		if err := c.reserve(ctx, map[string]int64{e.digest: e.Size}); err != nil {
			return err
		}
		return c.keep(ctx, e.digest, bytes.Clone(c.buf[:n]))
	case err != nil:
		return err
	}
	return c.large(ctx, e, io.MultiReader(bytes.NewReader(c.buf[:n]), r), may)
}

// wants reports whether a content must be written, and that it will be.
func (c *Capture) wants(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[e.digest] {
		return false
	}
	c.known[e.digest] = true
	return true
}

// keep writes a small content while others are read.
func (c *Capture) keep(ctx context.Context, digest string, data []byte) error {
	c.slots <- struct{}{}
	c.work.Go(func() {
		defer func() { <-c.slots }()
		err := c.s.o.Put(ctx, blobKey(c.tenant, digest), data)
		failpoint.Hit("workspace.kept")
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = errors.Join(c.err, err)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	return unavailable(c.err)
}

// large writes a content of which only its end tells what it is.
func (c *Capture) large(ctx context.Context, e *entry, r io.Reader, may bool) error {
	sum := sha256.New()
	var to io.Writer = sum
	var stage Stage
	if may {
		var err error
		if stage, err = c.s.o.Stage(ctx); err != nil {
			return unavailable(err)
		}
		defer stage.Drop()
		to = io.MultiWriter(sum, &storing{c: c, ctx: ctx, w: stage})
	}
	n, err := io.CopyBuffer(to, io.LimitReader(r, brig.MaxWorkspaceFile+1), make([]byte, small))
	if err != nil {
		return err
	}
	if n > brig.MaxWorkspaceFile {
		return tooMuch("bytes in one file", brig.FormatBytes(brig.MaxWorkspaceFile))
	}
	e.Size, e.digest = n, hex.EncodeToString(sum.Sum(nil))
	if !may || !c.wants(e) {
		return nil
	}
	if err := c.reserve(ctx, map[string]int64{e.digest: e.Size}); err != nil {
		return err
	}
	key := blobKey(c.tenant, e.digest)
	there, err := c.s.o.Has(ctx, key)
	if err == nil && !there {
		err = stage.Keep(ctx, key)
	}
	failpoint.Hit("workspace.large")
	return unavailable(err)
}

// storing is the way into a stage. It says of what fails that it was the store,
// not the machine, and ends when more has come than there can be room for.
type storing struct {
	c   *Capture
	ctx context.Context // of the call that writes
	w   io.Writer
	n   int64
}

// Write implements io.Writer. What the store has already is not known to be
// that before its end, and is let in.
func (s *storing) Write(p []byte) (int, error) {
	if s.n += int64(len(p)); s.c.quota > 0 && s.n > s.c.quota {
		return 0, overQuota(s.c.quota)
	}
	n, err := s.w.Write(p)
	return n, unavailable(err)
}
